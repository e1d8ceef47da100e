"""Train the in-betweening network, many short epochs with validation each time."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from motion import MotionClips

log = logging.getLogger("interp")


class InBetween(nn.Module):
    def __init__(self, width=36, hidden=64):
        super().__init__()
        self.rnn = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, width)

    def forward(self, x):
        return x + self.out(self.rnn(x)[0])


def loaders(args):
    common = dict(batch_size=args.batch_size, num_workers=args.workers, multiprocessing_context="spawn")
    return (
        DataLoader(MotionClips(args.clips, seed=0), shuffle=True, **common),
        DataLoader(MotionClips(args.clips // 4, seed=1), **common),
    )


def run_epoch(net, loader, opt=None):
    total, steps = 0.0, 0
    with torch.set_grad_enabled(opt is not None):
        for x, y in loader:
            loss = nn.functional.l1_loss(net(x), y)
            if opt is not None:
                opt.zero_grad()
                loss.backward()
                opt.step()
            total, steps = total + loss.item(), steps + 1
    return total / steps


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=300)
    ap.add_argument("--clips", type=int, default=128)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, val = loaders(args)
    net = InBetween()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    log.info("%d training batches, %d validation batches", len(train), len(val))
    for epoch in range(args.epochs):
        t0 = time.perf_counter()
        log.info("epoch %d train %.4f (%.2fs)", epoch, run_epoch(net, train, opt), time.perf_counter() - t0)
        log.info("epoch %d val %.4f (%.2fs)", epoch, run_epoch(net, val), time.perf_counter() - t0)


if __name__ == "__main__":
    main()
