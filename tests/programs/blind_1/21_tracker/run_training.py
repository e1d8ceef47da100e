import argparse
import logging
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from datasets import TrackingSampler, write_annotations

log = logging.getLogger("ltr")


class LTRTrainer:
    def __init__(self, net, loader):
        self.net, self.loader = net, loader
        self.opt = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def cycle_dataset(self, epoch):
        t_load = t_net = 0.0
        t0 = time.time()
        for a, b in self.loader:
            t1 = time.time()
            t_load += t1 - t0
            loss = (self.net(a) - b).abs().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            time.sleep(0.2)  # backbone
            t0 = time.time()
            t_net += t0 - t1
        log.info("[train %d] loss %.4f net %.1fs waiting for data %.1fs", epoch, loss.item(), t_net, t_load)

    def train(self, epochs):
        for e in range(epochs):
            self.cycle_dataset(e)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=200)
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--samples-per-epoch", type=int, default=160)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    path = write_annotations()
    try:
        loader = DataLoader(TrackingSampler(path, args.samples_per_epoch), batch_size=16, num_workers=args.workers,
                            multiprocessing_context="spawn")
        LTRTrainer(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 4)), loader).train(args.epochs)
    finally:
        os.unlink(path)


if __name__ == "__main__":
    main()
