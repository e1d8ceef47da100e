"""Trains a patch classifier; decoded tiles are cached in the loader workers."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from slides import PatchDataset

log = logging.getLogger("patches")


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--minutes", type=float, default=1.8)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    loader = DataLoader(PatchDataset(), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True)
    net = make_net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    t_end = time.monotonic() + 60 * args.minutes
    step, epoch = 0, 0
    while time.monotonic() < t_end:
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 25 == 0:
                log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
            if time.monotonic() > t_end:
                break
        epoch += 1


if __name__ == "__main__":
    main()
