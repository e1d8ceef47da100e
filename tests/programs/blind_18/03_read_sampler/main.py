"""Train a position regressor on sequencing reads."""
import argparse
import logging
import os
import signal
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from reads import FastqReads, simulate_lane

log = logging.getLogger("train")


class ReadNet(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Embedding(5, dim)
        self.conv = nn.Sequential(nn.Conv1d(dim, 32, 9, stride=4), nn.ReLU(),
                                  nn.Conv1d(32, 32, 5, stride=2), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, tokens):
        x = self.conv(self.embed(tokens).transpose(1, 2))
        return self.head(x.mean(2)).squeeze(1)


class Meter:
    def __init__(self):
        self.load = self.step = 0.0
        self.n = 0

    def add(self, load, step):
        self.load += load
        self.step += step
        self.n += 1

    def flush(self):
        out = (self.load / self.n, self.step / self.n)
        self.__init__()
        return out


def worker_init(worker_id):
    signal.alarm(140)
    torch.set_num_threads(1)


def train(args, dataset):
    model = ReadNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True,
                        num_workers=args.workers, worker_init_fn=worker_init,
                        generator=torch.Generator().manual_seed(args.seed))
    end = time.monotonic() + args.duration
    meter, step = Meter(), 0
    tick = time.monotonic()
    while True:
        for tokens, position in loader:
            got = time.monotonic()
            loss = nn.functional.mse_loss(model(tokens), position.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            now = time.monotonic()
            meter.add(got - tick, now - got)
            tick = now
            if step % args.log_every == 0:
                load, compute = meter.flush()
                log.info("step %d loss %.4f batch wait %.3f s compute %.3f s",
                         step, loss.item(), load, compute)
            if now > end:
                return step


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--reads", type=int, default=26_000)
    p.add_argument("--length", type=int, default=400)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--duration", type=float, default=115)
    p.add_argument("--log-every", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(140)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory(prefix="lane1-") as folder:
        path = os.path.join(folder, "lane1.fastq.gz")
        size = simulate_lane(path, args.reads, args.length, args.seed)
        log.info("lane1: %d reads, %.1f MB (%.1f MB compressed)", args.reads, size / 1e6,
                 os.path.getsize(path) / 1e6)
        dataset = FastqReads(path, args.length)
        steps = train(args, dataset)
        log.info("stopped after %d steps", steps)


if __name__ == "__main__":
    main()
