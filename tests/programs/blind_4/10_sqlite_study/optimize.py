"""Parallel hyper-parameter search for a small classifier, one process per worker."""
import argparse
import logging
import math
import multiprocessing as mp
import os
import random
import tempfile

import numpy as np

from storage import StudyStorage


class Objective:
    def __init__(self, storage, epochs):
        self.storage, self.epochs = storage, epochs
        rng = np.random.default_rng(3)
        self.x = rng.normal(size=(2000, 20))
        self.y = (self.x[:, :3].sum(1) > 0).astype(float)

    def __call__(self, trial, params):
        w = np.zeros(self.x.shape[1])
        loss = math.inf
        for epoch in range(self.epochs):
            pred = 1 / (1 + np.exp(-self.x @ w))
            w -= params["lr"] * (self.x.T @ (pred - self.y) / len(self.y) + params["l2"] * w)
            loss = float(-np.log(np.where(self.y > 0, pred, 1 - pred) + 1e-9).mean())
            if epoch % 25 == 0:
                self.storage.report(trial, epoch, loss)
        return loss


def worker(index, path, n_trials, epochs):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [worker {index}] %(message)s", force=True)
    rng = random.Random(os.getpid())
    storage = StudyStorage(path)
    objective = Objective(storage, epochs)

    def sampler():
        return {"lr": 10 ** rng.uniform(-2, 1), "l2": 10 ** rng.uniform(-5, -1)}

    for _ in range(n_trials):
        with storage.transaction() as con:
            trial, params = storage.claim(con, sampler)
            logging.info("trial %d %s", trial, params)
            value = objective(trial, params)
            storage.finish(con, trial, value)
        logging.info("trial %d finished with %.5f", trial, value)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--trials", type=int, default=20)
    p.add_argument("--epochs", type=int, default=200)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [main] %(message)s")
    with tempfile.TemporaryDirectory(prefix="study-") as tmp:
        path = os.path.join(tmp, "study.db")
        StudyStorage(path)
        procs = [mp.Process(target=worker, args=(i, path, args.trials, args.epochs)) for i in range(args.workers)]
        for proc in procs:
            proc.start()
        for proc in procs:
            proc.join()


if __name__ == "__main__":
    main()
