"""Trains a small glyph classifier for many short epochs."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from glyphs import GlyphDataset, draw_glyphs

log = logging.getLogger("glyphs")


def make_net(classes):
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 49, classes),
    )


class Trainer:
    def __init__(self, args):
        self.args = args
        images = draw_glyphs(args.classes, args.per_class, seed=0)
        split = args.per_class * 3 // 4
        # spawn: the parent process holds a tokenizer with threads in the full version
        options = dict(batch_size=args.batch_size, num_workers=args.workers, multiprocessing_context="spawn")
        self.train_loader = DataLoader(GlyphDataset(images[:, :split]), shuffle=True, **options)
        self.val_loader = DataLoader(GlyphDataset(images[:, split:], noise=0.0), **options)
        self.net = make_net(args.classes)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2e-3)

    def train_epoch(self):
        total = 0.0
        for x, y in self.train_loader:
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item() * len(y)
        return total / len(self.train_loader.dataset)

    @torch.no_grad()
    def validate(self):
        right = sum(int((self.net(x).argmax(1) == y).sum()) for x, y in self.val_loader)
        return right / len(self.val_loader.dataset)

    def run(self):
        for epoch in range(self.args.epochs):
            t0 = time.time()
            loss = self.train_epoch()
            t1 = time.time()
            accuracy = self.validate()
            log.info("epoch %d loss %.3f (%.1f s), accuracy %.2f (%.1f s)", epoch, loss, t1 - t0, accuracy,
                     time.time() - t1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--classes", type=int, default=20)
    p.add_argument("--per-class", type=int, default=16)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=300)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    Trainer(args).run()


if __name__ == "__main__":
    main()
