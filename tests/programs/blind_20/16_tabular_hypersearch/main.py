"""Hyper-parameter search over MLPs for a tabular regression, trials in parallel."""
import argparse
import concurrent.futures
import logging
import multiprocessing as mp
import os
import signal
import tempfile
import time

import numpy as np

from objective import init_worker, train_and_score
from space import Space, Trials

log = logging.getLogger("hypersearch")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--max-evals", type=int, default=5000)
    p.add_argument("--parallelism", type=int, default=3)
    p.add_argument("--trial-budget", type=float, default=1.3, help="training seconds of one trial")
    p.add_argument("--report-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=16)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


class Search:
    def __init__(self, args):
        self.args = args
        self.trials = Trials(Space(), args.seed)
        self.out_dir = tempfile.mkdtemp(prefix="hypersearch_")
        self.best_loss = float("inf")
        self.next_tid = 0
        self.started = time.monotonic()

    def submit(self, pool):
        params = self.trials.suggest()
        tid, self.next_tid = self.next_tid, self.next_tid + 1
        future = pool.submit(train_and_score, params, self.args.seed + tid,
                             self.args.trial_budget)
        return future, (tid, params)

    def finish(self, tid, params, result):
        self.trials.record(tid, params, result)
        if result["loss"] < self.best_loss:
            self.best_loss = result["loss"]
            log.info("trial %d is the new best: loss %.4f with %s", tid, result["loss"],
                     {k: round(v, 5) for k, v in params.items()})
        if len(self.trials) % self.args.report_every == 0:
            losses = self.trials.losses()
            log.info("%d trials, best %.4f, median %.4f, %.2f trials/s", len(self.trials),
                     min(losses), float(np.median(losses)),
                     len(self.trials) / (time.monotonic() - self.started))

    def run(self):
        ctx = mp.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(
                self.args.parallelism, mp_context=ctx, initializer=init_worker,
                initargs=(self.args.walltime,)) as pool:
            running = dict(self.submit(pool) for _ in range(self.args.parallelism))
            while running:
                done, _ = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    tid, params = running.pop(future)
                    self.finish(tid, params, future.result())
                    if self.next_tid < self.args.max_evals:
                        new, info = self.submit(pool)
                        running[new] = info
        best = self.trials.best()
        path = os.path.join(self.out_dir, "best_model.npz")
        np.savez(path, **best["result"]["model"])
        log.info("best loss %.4f, weights in %s", best["result"]["loss"], path)


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.alarm(args.walltime)
    Search(args).run()


if __name__ == "__main__":
    main()
