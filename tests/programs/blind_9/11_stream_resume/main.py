"""Bag-of-words intent classifier on a streamed corpus."""
import argparse
import json
import logging
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from optim import MomentumSgd
from stream import JsonlStream, WordHasher

log = logging.getLogger("intent")


def write_corpus(path, lines, seed):
    rng = random.Random(seed)
    words = [f"w{rng.randrange(10 ** 6)}" for _ in range(3000)]
    records = [json.dumps({"text": " ".join(rng.choices(words, k=24)), "label": i % 5}) + "\n" for i in range(2000)]
    with open(path, "w") as f:
        for _ in range(lines // 1000):
            f.writelines(rng.sample(records, 1000))


class Throughput:
    def __init__(self, every):
        self.every, self.seen, self.t0 = every, 0, time.monotonic()

    def update(self, n, step, loss):
        self.seen += n
        now = time.monotonic()
        if now - self.t0 >= self.every:
            log.info("step %d loss %.4f %.0f examples/s", step, loss, self.seen / (now - self.t0))
            self.seen, self.t0 = 0, now


def main(args):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="intent_") as root:
        paths = []
        for i in range(args.workers):
            paths.append(os.path.join(root, f"part{i}.jsonl"))
            write_corpus(paths[-1], args.lines, i)
        data = JsonlStream(paths, WordHasher(4096), args.window)
        loader = DataLoader(data, batch_size=32, num_workers=args.workers)
        model = nn.Sequential(nn.EmbeddingBag(4096, 32), nn.Linear(32, 5))
        opt = MomentumSgd(model.parameters(), lr=1e-3)
        meter = Throughput(2.0)
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter.update(len(y), step, loss.item())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--lines", type=int, default=200000)
    ap.add_argument("--window", type=int, default=256)
    ap.add_argument("--workers", type=int, default=2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
