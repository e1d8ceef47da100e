import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from tiles import TileDataset

log = logging.getLogger("tiles")


class Trainer:
    def __init__(self, args):
        self.args = args
        self.train_set = TileDataset(1)
        self.val_set = TileDataset(2, n_tiles=48)
        self.model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
                                   nn.Flatten(), nn.Linear(32, 4))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.loss_fn = nn.CrossEntropyLoss()

    def _loader(self, ds, shuffle):
        return DataLoader(ds, batch_size=self.args.batch_size, shuffle=shuffle,
                          num_workers=self.args.workers, multiprocessing_context="spawn")

    def train_epoch(self):
        total = 0.0
        for x, y in self._loader(self.train_set, True):
            loss = self.loss_fn(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total

    @torch.no_grad()
    def validate(self):
        right = 0
        for x, y in self._loader(self.val_set, False):
            right += (self.model(x).argmax(1) == y).sum().item()
        return right / len(self.val_set)

    def fit(self):
        for epoch in range(self.args.epochs):
            t0 = time.time()
            loss = self.train_epoch()
            log.info("epoch %d train pass %.1fs", epoch, time.time() - t0)
            acc = self.validate()
            log.info("epoch %d loss %.3f acc %.2f time %.1fs", epoch, loss, acc, time.time() - t0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=1)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    Trainer(args).fit()


if __name__ == "__main__":
    main()
