"""Fit an energy model on molecular dynamics frames."""
import argparse
import logging
import shutil
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from data import FrameDataset, write_sets

log = logging.getLogger("dp")


class EnergyNet(nn.Module):
    def __init__(self, natoms):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(natoms, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, radial):
        return self.f(radial).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--sets", type=int, default=3)
    ap.add_argument("--frames", type=int, default=2000)
    ap.add_argument("--natoms", type=int, default=192)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=10)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    root = write_sets(args.sets, args.frames, args.natoms)
    try:
        loader = DataLoader(FrameDataset(root, args.frames), batch_size=args.batch, shuffle=True,
                            num_workers=args.workers)
        net = EnergyNet(args.natoms)
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        for ep in range(args.epochs):
            t0 = time.time()
            for step, (_, radial, e) in enumerate(loader):
                t1 = time.time()
                loss = (net(radial) - e).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                log.info("epoch %d step %d/%d loss %.1f data %.2fs net %.3fs", ep, step, len(loader), loss.item(),
                         t1 - t0, time.time() - t1)
                t0 = time.time()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
