import argparse
import logging
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from dataset import CropDataset

log = logging.getLogger("presto")


class PixelEncoder(nn.Module):
    def __init__(self, bands=13, dim=32, classes=9):
        super().__init__()
        self.rnn = nn.GRU(bands, dim, batch_first=True)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        _, hidden = self.rnn(x)
        return self.head(hidden[-1])


class Trainer:
    def __init__(self, args):
        self.args = args
        dataset = CropDataset(args.parcels, args.cache_items)
        self.loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.num_workers,
                                 persistent_workers=True, drop_last=True)
        self.model = PixelEncoder()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self):
        started = time.monotonic()
        epoch = 0
        while True:
            for series, label in self.loader:
                loss = self.criterion(self.model(series), label)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                time.sleep(self.args.device_latency)
                if time.monotonic() - started > self.args.max_time:
                    log.info("time budget of %.0fs used up in epoch %d, loss %.3f", self.args.max_time, epoch, loss.item())
                    return
            log.info("epoch %d loss %.3f %.0fs", epoch, loss.item(), time.monotonic() - started)
            epoch += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parcels", type=int, default=1600)
    parser.add_argument("--cache-items", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--max-time", type=float, default=100.0)
    parser.add_argument("--device-latency", type=float, default=0.25)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    Trainer(args).fit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
