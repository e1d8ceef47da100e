"""Image classifier with progressive resizing and augmentation in side processes."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn

from relay import AugmentRelay

log = logging.getLogger("relay_train")


class SmallNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.features(x))


def make_batches(n, batch_size, side, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        labels = rng.integers(0, 10, batch_size)
        images = rng.standard_normal((batch_size, 3, side, side), dtype=np.float32)
        images += labels[:, None, None, None] / 10
        yield images, labels


def train_stage(side, n, model, opt, relay, args):
    log.info("stage at %d px, %d batches", side, n)
    t0 = time.time()
    for step, (x, y) in enumerate(relay.map(make_batches(n, args.batch_size, side, seed=side))):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            log.info("%d px step %d loss %.3f %.1f s", side, step, loss.item(), time.time() - t0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sides", type=int, nargs="+", default=[32, 48, 96, 128])
    p.add_argument("--batches", type=int, nargs="+", default=[150, 100, 400, 400])
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--processes", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    relay = AugmentRelay(args.processes)
    model = SmallNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for side, n in zip(args.sides, args.batches):
        train_stage(side, n, model, opt, relay, args)
    relay.close()


if __name__ == "__main__":
    main()
