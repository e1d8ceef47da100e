import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from shards import ShardedClicks

log = logging.getLogger("train")


def train_epoch(model, loader, optimizer, criterion, epoch):
    total, steps = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        steps += 1
        if steps % 20 == 0:
            log.info("epoch %d step %d loss %.4f", epoch, steps, total / steps)
    return total / max(steps, 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=1e-2)
    args = p.parse_args()

    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(message)s")
    dist.init_process_group("gloo")

    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    loader = DataLoader(ShardedClicks(rank, world), batch_size=args.batch_size)
    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, optimizer, nn.BCEWithLogitsLoss(), epoch)
        log.info("epoch %d finished, mean loss %.4f", epoch, loss)
        dist.barrier()
        if rank == 0:
            torch.save(model.module.state_dict(), "/tmp/clicks_ddp.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
