import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    model = DDP(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(20000):
        x = torch.randn(32, 128)
        loss = (model(x) - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0 and rank == 0:
            logging.info("step %d loss %.5f lr %.1e tokens %d", step, loss.item(), 1e-4, step * 32 * 2048)
        time.sleep(0.01)
    if rank == 0:
        torch.save(model.module.state_dict(), os.environ["FINAL_CKPT"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
