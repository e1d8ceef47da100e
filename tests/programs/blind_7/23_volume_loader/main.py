"""Classifies small volumes; preprocessing in the loader workers."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from volumes import ScanStream, scan_list

log = logging.getLogger("volumes")


def make_net():
    return nn.Sequential(nn.Conv3d(1, 8, 3, 2), nn.ReLU(), nn.Conv3d(8, 16, 3, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(16, 2))


class Rate:
    """Steps per second over the last window."""

    def __init__(self):
        self.t, self.n = time.monotonic(), 0

    def tick(self):
        self.n += 1

    def read(self):
        now = time.monotonic()
        rate = self.n / (now - self.t)
        self.t, self.n = now, 0
        return rate


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--small", type=int, default=300)
    p.add_argument("--large", type=int, default=800)
    p.add_argument("--epochs", type=int, default=20)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    scans = scan_list(args.small, args.large)
    net = make_net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        loader = DataLoader(ScanStream(scans), batch_size=args.batch_size, num_workers=args.workers)
        rate = Rate()
        for step, (x, y) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            rate.tick()
            if step % 15 == 0:
                log.info("epoch %d step %d loss %.3f, %.1f steps/s", epoch, step, loss.item(), rate.read())


if __name__ == "__main__":
    main()
