"""torchrun --standalone --nproc-per-node 3 train_seg.py"""
import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from validate import sliding_window_validation

log = logging.getLogger("seg")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--steps", type=int, default=60)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    torch.set_num_threads(1)
    net = DDP(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1), nn.Sigmoid()))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for ep in range(args.epochs):
        for _ in range(args.steps):
            x = torch.rand(2, 1, 32, 32)
            loss = nn.functional.binary_cross_entropy(net(x), (x > 0.5).float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.1)
        if rank == 0:
            log.info("epoch %d loss %.4f, validating", ep, loss.item())
            log.info("epoch %d dice %.4f", ep, sliding_window_validation(net.module))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
