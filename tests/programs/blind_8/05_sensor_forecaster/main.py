import argparse
import logging
import time

import torch
from torch.utils.data import DataLoader

from forecaster import SensorWindows, Forecaster

log = logging.getLogger("forecast")


class Runner:
    def __init__(self, args):
        self.args = args
        self.model = Forecaster(args.window)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.train_loader = self.loader(SensorWindows(args.samples, args.window, seed=0), shuffle=True)

    def loader(self, dataset, shuffle):
        return DataLoader(
            dataset,
            batch_size=self.args.batch_size,
            shuffle=shuffle,
            num_workers=self.args.workers,
            multiprocessing_context="spawn",
        )

    def train_epoch(self):
        seen, total = 0, 0.0
        for x, y in self.train_loader:
            self.opt.zero_grad()
            loss = (self.model(x) - y).pow(2).mean()
            loss.backward()
            self.opt.step()
            total += loss.item() * len(x)
            seen += len(x)
        return total / seen, seen

    def fit(self):
        for epoch in range(self.args.epochs):
            start = time.time()
            loss, seen = self.train_epoch()
            spent = time.time() - start
            log.info("epoch %d loss %.4f, %.1f samples/s", epoch, loss, seen / spent)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--samples", type=int, default=512)
    p.add_argument("--window", type=int, default=96)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--epochs", type=int, default=200)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Runner(args).fit()


if __name__ == "__main__":
    main()
