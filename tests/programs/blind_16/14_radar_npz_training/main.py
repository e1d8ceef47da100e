import argparse
import logging
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from dataset import PreviewDataset, SweepDataset, build_archive

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser(description="left/right classifier on radar sweeps")
    p.add_argument("--sweeps", type=int, default=24000)
    p.add_argument("--bins", type=int, default=2048)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--warmup-seconds", type=float, default=2.0)
    p.add_argument("--log-every", type=int, default=2)
    p.add_argument("--data", default=None)
    return p.parse_args()


def step(model, optim, rows, labels):
    optim.zero_grad()
    loss = nn.functional.cross_entropy(model(rows), labels)
    loss.backward()
    optim.step()
    return loss.item()


def warm_up(model, optim, path, args):
    loader = DataLoader(PreviewDataset(path, 2000), args.batch_size, shuffle=True)
    end, n, start = time.time() + args.warmup_seconds, 0, time.time()
    while time.time() < end:
        for rows, labels in loader:
            loss = step(model, optim, rows, labels)
            n += 1
            if time.time() > end:
                break
    log.info("warm up: %d steps, %.1f samples/s, loss %.4f", n, n * args.batch_size / (time.time() - start), loss)


def train(model, optim, path, args):
    dataset = SweepDataset(path, np.random.default_rng(1).permutation(args.sweeps))
    loader = DataLoader(dataset, args.batch_size, num_workers=args.workers, persistent_workers=True)
    for epoch in range(args.epochs):
        last, seen = time.time(), 0
        for i, (rows, labels) in enumerate(loader, 1):
            loss = step(model, optim, rows, labels)
            seen += len(rows)
            if i % args.log_every == 0:
                now = time.time()
                log.info("epoch %d step %d/%d loss %.4f  %.1f samples/s", epoch, i, len(loader), loss,
                         seen / (now - last))
                last, seen = now, 0


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="radar_") as tmp:
        path = build_archive(args.data or tmp, args.sweeps, args.bins, np.random.default_rng(0))
        log.info("archive %s ready", path)
        model = nn.Sequential(nn.Linear(args.bins, 64), nn.ReLU(), nn.Linear(64, 2))
        optim = torch.optim.SGD(model.parameters(), lr=0.05)
        warm_up(model, optim, path, args)
        train(model, optim, path, args)


if __name__ == "__main__":
    main()
