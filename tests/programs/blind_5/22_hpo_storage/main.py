import argparse
import logging
import os
import random
import tempfile
import time

import torch
import torch.multiprocessing as mp
from torch import nn

from storage import TrialStorage

log = logging.getLogger("study")


class Objective:
    def __init__(self, storage, worker, rows):
        self.storage = storage
        self.worker = worker
        g = torch.Generator().manual_seed(worker)
        self.x = torch.randn(rows, 8, generator=g)
        self.y = self.x.sum(1, keepdim=True)

    def __call__(self, lr):
        trial = self.storage.new_trial(self.worker, lr)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        opt = torch.optim.SGD(model.parameters(), lr=lr)
        t0 = time.time()
        step = 0
        for xb, yb in zip(self.x.split(4), self.y.split(4)):
            loss = ((model(xb) - yb) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            self.storage.report(trial, step, loss.item())
            step += 1
            if step % 10 == 0:
                log.info("worker %d trial %d step %d value %.4f (%.1f steps/s)", self.worker, trial, step,
                         loss.item(), step / (time.time() - t0))
        self.storage.finish(trial)


def run_worker(worker, path, n_trials, rows):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    objective = Objective(TrialStorage(path), worker, rows)
    rng = random.Random(worker)
    for _ in range(n_trials):
        objective(10 ** rng.uniform(-4, -2))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--trials", type=int, default=20)
    p.add_argument("--rows", type=int, default=40000)
    p.add_argument("--dir", default=None)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="study_", dir=args.dir) as d:
        path = os.path.join(d, "study.db")
        TrialStorage(path).create_tables()
        procs = [mp.Process(target=run_worker, args=(w, path, args.trials, args.rows), daemon=True)
                 for w in range(args.jobs)]
        for pr in procs:
            pr.start()
        for pr in procs:
            pr.join()


if __name__ == "__main__":
    main()
