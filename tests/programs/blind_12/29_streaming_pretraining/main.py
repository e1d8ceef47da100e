"""Behaviour cloning on a shuffled stream of robot frames."""
import argparse
import logging
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from stream import ShuffledStream

log = logging.getLogger("train")


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Conv2d(8, 16, 4, stride=4), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(256, 7))

    def forward(self, frames):
        return self.net(frames.permute(0, 3, 1, 2).float() / 255)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--shuffle-size", type=int, default=5000)
    parser.add_argument("--read-time", type=float, default=0.004)
    parser.add_argument("--duration", type=float, default=110)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    stream = ShuffledStream(shards=64, items=400, shuffle_size=args.shuffle_size, read_time=args.read_time)
    loader = DataLoader(stream, batch_size=args.batch_size, num_workers=args.workers, prefetch_factor=2)
    model = Policy()
    started = last = time.monotonic()
    seen = 0
    for frames, actions in loader:
        loss = nn.functional.mse_loss(model(frames), actions)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= args.lr * p.grad
        seen += len(frames)
        now = time.monotonic()
        if now - last > 5:
            log.info("%d frames, loss %.4f, %.1f frames/s", seen, loss.item(), seen / (now - started))
            last = now
        if now - started > args.duration:
            break
    log.info("finished after %d frames", seen)


if __name__ == "__main__":
    main()
