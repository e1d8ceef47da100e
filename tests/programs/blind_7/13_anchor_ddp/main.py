"""A tiny grid detector with DDP."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from data import SceneDataset, assign, collate

log = logging.getLogger("detector")


class GridDetector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(),
        )
        self.box = nn.Conv2d(128, 4, 1)

    def forward(self, x):
        return self.box(self.body(x)).sigmoid()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def train_epoch(model, loader, opt, epoch, rank):
    used = 0
    for step, (images, boxes) in enumerate(loader):
        owner, target = assign(boxes)
        if not owner:
            log.debug("no anchors in batch %d", step)
            continue
        pred = model(images)
        k, y, x = zip(*owner)
        loss = nn.functional.smooth_l1_loss(pred[list(k), :, list(y), list(x)], target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        used += 1
        if rank == 0 and step % 10 == 0:
            log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    return used


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DDP(GridDetector())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = SceneDataset(args.batches * args.batch_size, seed=3 * rank + 2)
    loader = DataLoader(data, batch_size=args.batch_size, collate_fn=collate)
    for epoch in range(args.epochs):
        used = train_epoch(model, loader, opt, epoch, rank)
        dist.barrier()
        if rank == 0:
            log.info("epoch %d done, %d batches", epoch, used)
            torch.save(model.module.state_dict(), "detector.pt")
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--batches", type=int, default=40)
    p.add_argument("--batch-size", type=int, default=4)
    args = p.parse_args()
    mp.spawn(worker, args=(args, free_port()), nprocs=args.world_size)


if __name__ == "__main__":
    main()
