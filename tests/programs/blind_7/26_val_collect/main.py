"""Validates a small network over a long stream and computes the curves at the end."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("validate")


class TileDataset(Dataset):
    """Aerial tiles with a mask label and the name of the region."""

    def __init__(self, n, side=64):
        self.n, self.side = n, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        image = rng.standard_normal((3, self.side, self.side), dtype=np.float32)
        return {
            "image": torch.from_numpy(image),
            "area": torch.tensor(float(image[0].mean() > 0)),
            "region": torch.tensor(i % 12),
            "weight": torch.tensor(rng.random(dtype=np.float32)),
        }


class Collector:
    """Everything the curves need, batch by batch."""

    def __init__(self):
        self.scores, self.targets, self.regions, self.weights = [], [], [], []

    def update(self, scores, batch):
        self.scores.append(scores)
        self.targets.append(batch["area"])
        self.regions.append(batch["region"])
        self.weights.append(batch["weight"])

    def average_precision(self):
        s, t, w = torch.cat(self.scores), torch.cat(self.targets), torch.cat(self.weights)
        order = s.argsort(descending=True)
        t, w = t[order], w[order]
        tp = (t * w).cumsum(0)
        precision = tp / w.cumsum(0)
        return float((precision * t * w).sum() / (t * w).sum())

    def per_region(self):
        s, r = torch.cat(self.scores), torch.cat(self.regions)
        return {int(k): float(s[r == k].mean()) for k in r.unique()}


def make_net():
    return nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1)).eval()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tiles", type=int, default=64_000)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--tta", type=int, default=16, help="flipped and shifted copies per tile")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)

    loader = DataLoader(TileDataset(args.tiles), batch_size=args.batch_size, num_workers=args.workers)
    net, collector = make_net(), Collector()
    t0 = time.time()
    with torch.no_grad():
        for step, batch in enumerate(loader, 1):
            x = batch["image"]
            views = [torch.roll(x.flip(-1) if k % 2 else x, k, -1) for k in range(args.tta)]
            scores = torch.stack([net(v)[:, 0].sigmoid() for v in views]).mean(0)
            collector.update(scores, batch)
            if step % 20 == 0:
                log.info("%d/%d batches, %.1f per second", step, len(loader), step / (time.time() - t0))
    log.info("AP %.4f, regions %s", collector.average_precision(), collector.per_region())


if __name__ == "__main__":
    main()
