import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from datasets import ImageListDataset

torch.set_num_threads(1)


def build_loader(args):
    return DataLoader(ImageListDataset(args.images), batch_size=args.batch_size, shuffle=True,
                      num_workers=args.workers)


class Runner:
    def __init__(self, args):
        self.args = args
        self.log = logging.getLogger("runner")
        self.loader = build_loader(args)
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 256, 64), nn.ReLU(), nn.Linear(64, 10))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def train_epoch(self, epoch):
        t0, total = time.time(), 0.0
        for img, label in self.loader:
            loss = nn.functional.cross_entropy(self.model(img), label)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        self.log.info("epoch %d loss %.3f time %.1fs", epoch, total / len(self.loader), time.time() - t0)

    def run(self):
        start, epoch = time.time(), 0
        while time.time() - start < self.args.max_time:
            self.train_epoch(epoch)
            epoch += 1


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=600)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--max-time", type=float, default=80)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Runner(args).run()
