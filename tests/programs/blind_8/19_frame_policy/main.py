import argparse
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from frames.dataset import FrameDataset
from frames.recorder import record_demos

log = logging.getLogger("policy")


class BehaviorCloner:
    def __init__(self):
        self.net = nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
        self.net(torch.zeros(1, 3, 96, 96))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def step(self, images, actions):
        self.opt.zero_grad()
        loss = (self.net(images) - actions).pow(2).mean()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--demos", type=int, default=6)
    p.add_argument("--frames", type=int, default=240)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=50)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    with tempfile.TemporaryDirectory(prefix="demos_") as root:
        paths = record_demos(root, args.demos, args.frames)
        log.info("%d demos of %d frames", len(paths), args.frames)
        loader = DataLoader(
            FrameDataset(paths, args.frames),
            batch_size=args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
        )
        cloner = BehaviorCloner()
        start, seen = time.time(), 0
        for epoch in range(args.epochs):
            for images, actions in loader:
                loss = cloner.step(images, actions)
                seen += len(images)
                log.info("epoch %d loss %.4f, %.1f frames/s", epoch, loss, seen / (time.time() - start))


if __name__ == "__main__":
    main()
