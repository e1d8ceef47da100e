"""Train a small classifier from tar shards that are streamed from a bucket."""
import argparse
import logging
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from shards import ShardDataset, ShardStore, write_shards

log = logging.getLogger("shard_trainer")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--shard-sizes", type=int, nargs="+", default=[240, 280, 9000])
    p.add_argument("--num-workers", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=20)
    p.add_argument("--prefetch-factor", type=int, default=2)
    p.add_argument("--latency-ms", type=float, default=25.0, help="one read from the bucket")
    p.add_argument("--features", type=int, default=256)
    p.add_argument("--epochs", type=int, default=2)
    return p.parse_args()


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.data, self.total, self.n, self.mark = 0.0, 0.0, 0, time.perf_counter()

    def data_done(self):
        self.data += time.perf_counter() - self.mark

    def step_done(self, n):
        now = time.perf_counter()
        self.total += now - self.mark
        self.n += n
        self.mark = now

    def __str__(self):
        return f"{self.n / self.total:.1f} samples/s, data {100 * self.data / self.total:.0f} %"


def train(args, loader):
    model = torch.nn.Sequential(torch.nn.Linear(args.features, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        meter = Meter()
        for step, (x, y) in enumerate(loader):
            meter.data_done()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.step_done(len(x))
            if (step + 1) % 10 == 0:
                log.info("epoch %d step %d loss %.3f (%s)", epoch, step + 1, loss.item(), meter)
                meter.reset()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="shards_"))
    urls = write_shards(root, args.shard_sizes, args.features)
    log.info("%d shards, %d samples", len(urls), sum(args.shard_sizes))
    dataset = ShardDataset(urls, ShardStore(args.latency_ms / 1000))
    loader = DataLoader(dataset, batch_size=args.batch_size, num_workers=args.num_workers,
                        prefetch_factor=args.prefetch_factor)
    train(args, loader)


if __name__ == "__main__":
    main()
