"""Trains a small classifier on augmented micrographs."""
import argparse
import logging
import os
import time

import torch
from torch import nn

import runtime
from data import build_loader

log = logging.getLogger("train")


class Net(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(16 * 16, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.loader = build_loader(args)
        self.model = Net()
        self.optim = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.loss_fn = nn.CrossEntropyLoss()

    def run_epoch(self, epoch):
        waited, images, mark = 0.0, 0, time.perf_counter()
        start = mark
        for step, (x, y) in enumerate(self.loader):
            waited += time.perf_counter() - mark
            loss = self.loss_fn(self.model(x), y)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            images += len(y)
            if step % self.args.log_every == 0:
                elapsed = time.perf_counter() - start
                log.info("epoch %d step %d loss %.3f  %.1f img/s  waiting for data %.0f%%",
                         epoch, step, loss.item(), images / elapsed, 100 * waited / elapsed)
            mark = time.perf_counter()

    def fit(self):
        for epoch in range(self.args.epochs):
            self.run_epoch(epoch)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=4000)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--local-rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    p.add_argument("--no-pin", dest="pin", action="store_false")
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    runtime.setup(args)
    Trainer(args).fit()
