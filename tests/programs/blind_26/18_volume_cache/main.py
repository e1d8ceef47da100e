"""Segmentation of volumes that do not all fit into memory."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn

from smartcache import SmartCache
from volumes import Preprocess

log = logging.getLogger("train")


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 4, 3, padding=1), nn.ReLU(),
                                 nn.Conv3d(4, 1, 1))

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self, args, cache):
        self.args, self.cache = args, cache
        self.rng = np.random.default_rng(args.seed)
        self.model = SegNet()
        self.optim = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.loss = nn.BCEWithLogitsLoss()

    def crop(self, item):
        side = item["image"].shape[0]
        z, y, x = self.rng.integers(0, side - self.args.patch, 3)
        window = np.s_[z:z + self.args.patch, y:y + self.args.patch, x:x + self.args.patch]
        return item["image"][window], item["label"][window]

    def step(self, items):
        pairs = [self.crop(i) for i in items]
        x = torch.from_numpy(np.stack([p[0] for p in pairs])).unsqueeze(1)
        y = torch.from_numpy(np.stack([p[1] for p in pairs])).unsqueeze(1)
        loss = self.loss(self.model(x), y)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item()

    def epoch(self, number):
        begin = time.monotonic()
        losses = []
        for _ in range(self.args.passes):
            order = self.rng.permutation(len(self.cache.cache))
            for i in range(0, len(order), self.args.batch):
                losses.append(self.step([self.cache.cache[j] for j in order[i:i + self.args.batch]]))
        trained = time.monotonic() - begin
        waited = self.cache.update()
        self.cache.start_replacement()
        log.info("epoch %d loss %.4f steps %d train %.1fs replacement wait %.1fs cases %s", number, np.mean(losses),
                 len(losses), trained, waited, [i["case"] for i in self.cache.cache[-3:]])


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--cases", type=int, default=400)
    p.add_argument("--cache-num", type=int, default=60)
    p.add_argument("--replace-num", type=int, default=15)
    p.add_argument("--side", type=int, default=80)
    p.add_argument("--read-delay", type=float, default=0.7)
    p.add_argument("--replace-workers", type=int, default=2)
    p.add_argument("--passes", type=int, default=4)
    p.add_argument("--patch", type=int, default=32)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--epochs", type=int, default=10000)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    cache = SmartCache(list(range(args.cases)), Preprocess(args.side, args.read_delay), args.cache_num,
                       args.replace_num, args.replace_workers)
    torch.set_num_threads(1)
    cache.fill()
    cache.start_replacement()
    trainer = Trainer(args, cache)
    for number in range(args.epochs):
        trainer.epoch(number)


if __name__ == "__main__":
    main()
