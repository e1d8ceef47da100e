"""Monte-Carlo dropout intervals for many small series; workers are recycled by the pool."""
import argparse
import json
import logging
import multiprocessing as mp
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

log = logging.getLogger("mc_dropout")


class Forecaster(nn.Module):
    def __init__(self, lags=24, hidden=64, p=0.2):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(lags, hidden), nn.ReLU(), nn.Dropout(p),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(p), nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x)


def make_series(seed, n=600):
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    return np.sin(t / (8 + seed % 7)) + 0.2 * rng.standard_normal(n) + 0.001 * (seed % 5) * t


def fit_one(job):
    seed, steps, draws = job
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    y = torch.from_numpy(make_series(seed)).float()
    x = y.unfold(0, 25, 1)
    x, target = x[:, :24], x[:, 24:]
    net = Forecaster()
    params = list(net.parameters())
    velocity = [torch.zeros_like(p) for p in params]
    for _ in range(steps):
        loss = nn.functional.mse_loss(net(x), target)
        with torch.no_grad():
            for p, v, g in zip(params, velocity, torch.autograd.grad(loss, params)):
                p.sub_(0.01 * v.mul_(0.9).add_(g))
    with torch.no_grad():
        sample = torch.stack([net(x[-1:])[0, 0] for _ in range(draws)])
    return {"series": seed, "mean": sample.mean().item(), "std": sample.std().item(), "pid": os.getpid()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--series", type=int, default=600)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--draws", type=int, default=200)
    p.add_argument("--fits-per-process", type=int, default=4, help="fresh process after that many fits")
    p.add_argument("--out", type=Path, default=Path("runs/intervals.jsonl"))
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    args.out.parent.mkdir(parents=True, exist_ok=True)
    jobs = [(s, args.steps, args.draws) for s in range(args.series)]
    t0 = time.time()
    with mp.Pool(args.processes, maxtasksperchild=args.fits_per_process) as pool, args.out.open("w") as f:
        for n, row in enumerate(pool.imap_unordered(fit_one, jobs), 1):
            f.write(json.dumps(row) + "\n")
            f.flush()
            if n % 5 == 0:
                log.info("%d/%d, %.2f series/s, last from pid %d", n, len(jobs), n / (time.time() - t0), row["pid"])


if __name__ == "__main__":
    main()
