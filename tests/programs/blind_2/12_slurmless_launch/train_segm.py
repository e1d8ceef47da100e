import logging
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build_model():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 5, 1))


def main():
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    model = build_model()
    logging.info("model has %d parameters", sum(p.numel() for p in model.parameters()))
    dist.init_process_group("gloo", timeout=timedelta(minutes=60))
    logging.info("process group ready, world size %d", dist.get_world_size())
    model = DDP(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(2000):
        x, y = torch.randn(4, 3, 64, 64), torch.randint(5, (4, 64, 64))
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            logging.info("step %d loss %.3f", step, loss.item())


if __name__ == "__main__":
    main()
