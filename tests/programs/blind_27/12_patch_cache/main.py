"""Trains a small patch classifier; the patch features come from data loader workers with a cache on disk."""
import argparse
import logging
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

from dataset import PatchDataset, make_scan

log = logging.getLogger("train")


class PatchNet(nn.Module):
    def __init__(self, features, classes=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, classes))

    def forward(self, x):
        return self.net(x)


class MomentumSGD:
    def __init__(self, params, lr, momentum=0.9):
        self.params = list(params)
        self.lr, self.momentum = lr, momentum
        self.velocity = [torch.zeros_like(p) for p in self.params]

    def minimize(self, loss):
        grads = torch.autograd.grad(loss, self.params)
        with torch.no_grad():
            for p, v, g in zip(self.params, self.velocity, grads):
                v.mul_(self.momentum).add_(g)
                p.sub_(self.lr * v)


def train(args, cache_dir):
    scan = make_scan(args.shape, seed=args.seed)
    log.info("scan %s, %.0f MB", scan.shape, scan.nbytes / 2**20)
    dataset = PatchDataset(scan, cache_dir, positions=args.positions, patch=args.patch, seed=args.seed)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True)
    model = PatchNet(dataset.num_features)
    opt = MomentumSGD(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        waited = 0.0
        mark = time.time()
        for step, (x, y) in enumerate(loader):
            waited += time.time() - mark
            loss = F.cross_entropy(model(x), y)
            opt.minimize(loss)
            if step % 5 == 0:
                log.info("epoch %d step %d/%d loss %.4f, waited %.1fs for data",
                         epoch, step, len(loader), loss.item(), waited)
            mark = time.time()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--shape", type=int, nargs=3, default=[320, 384, 384])
    p.add_argument("--positions", type=int, default=192)
    p.add_argument("--patch", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=1000)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory(prefix="patch-cache-") as cache_dir:
        train(args, cache_dir)


if __name__ == "__main__":
    main()
