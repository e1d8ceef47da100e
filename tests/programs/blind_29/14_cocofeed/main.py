import argparse
import functools
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from dataset import MaskStream, init_worker

log = logging.getLogger("train")


class MaskClassifier(nn.Module):
    def __init__(self, grid, classes=80):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(),
                                  nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(16 * (grid // 4) ** 2, classes)

    def forward(self, cells):
        side = int(cells.shape[1] ** 0.5)
        return self.head(self.body(cells.view(-1, 1, side, side)))


class Trainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.model = MaskClassifier(args.grid)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def fit(self, loader):
        began, seen = time.monotonic(), 0
        for step, (cells, category) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(self.model(cells), category)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            seen += len(category)
            if step % self.args.log_every == 0:
                log.info("step %d loss %.4f, %.0f masks/s", step, loss.item(), seen / (time.monotonic() - began))


def parse_args():
    p = argparse.ArgumentParser(description="train on a stream of polygon annotations")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rate", type=float, default=700.0, help="records per second that the service delivers per loader")
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--grid", type=int, default=16)
    p.add_argument("--width", type=int, default=640)
    p.add_argument("--height", type=int, default=480)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="cocofeed-") as log_dir:
        loader = DataLoader(MaskStream(args), batch_size=args.batch_size, num_workers=args.workers, prefetch_factor=4,
                            worker_init_fn=functools.partial(init_worker, log_dir=log_dir))
        Trainer(args).fit(loader)


if __name__ == "__main__":
    main()
