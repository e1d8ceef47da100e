"""Transfer learning: train the head first, then the whole network, on three processes."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import Dataset

from trainer import BackboneFinetuning, BestCheckpoint, Trainer


class PatchDataset(Dataset):
    """Texture patches whose statistics depend on the acquisition site."""

    def __init__(self, size, classes=10, seed=0, side=16):
        self.size, self.classes, self.side = size, classes, side
        gen = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, classes, (size,), generator=gen)
        self.prototypes = torch.randn(classes, 3, side, side, generator=torch.Generator().manual_seed(99))

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        label = int(self.labels[index])
        noise = torch.randn(3, self.side, self.side, generator=gen)
        if index % 32 == 0:
            time.sleep(0.02)
        return self.prototypes[label] * 0.13 + noise, label


class PatchClassifier(nn.Module):
    def __init__(self, classes=10, width=24, lr=0.05):
        super().__init__()
        self.lr = lr
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1), nn.GroupNorm(4, width), nn.ReLU(),
            nn.Conv2d(width, width * 2, 3, stride=2, padding=1), nn.GroupNorm(4, width * 2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(width * 8, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, x):
        return self.head(self.backbone(x))

    def loss(self, logits, labels):
        return nn.functional.cross_entropy(logits, labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.head.parameters(), lr=self.lr, momentum=0.9)


def time_limit(until):
    def expire():
        time.sleep(max(0.0, until - time.time()))
        os._exit(0)

    threading.Thread(target=expire, daemon=True).start()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(rank, args, port, directory):
    time_limit(args.until)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size, timeout=timedelta(minutes=5))
    torch.manual_seed(args.seed)
    module = PatchClassifier(lr=args.lr)
    callbacks = [BackboneFinetuning(args.unfreeze_epoch), BestCheckpoint(directory)]
    trainer = Trainer(rank, args.world_size, args.epochs, callbacks, max_time=args.max_time)
    trainer.fit(module, PatchDataset(args.samples, seed=1), PatchDataset(args.samples // 4, seed=2))
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=1000)
    p.add_argument("--samples", type=int, default=4000)
    p.add_argument("--unfreeze-epoch", type=int, default=2)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--max-time", type=float, default=105)
    args = p.parse_args()
    args.until = time.time() + args.max_time + 10
    time_limit(args.until)
    with tempfile.TemporaryDirectory(prefix="patches_") as directory:
        mp.start_processes(worker, args=(args, free_port(), directory), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
