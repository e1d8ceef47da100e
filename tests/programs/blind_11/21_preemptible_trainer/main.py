"""Train a tagger on a preemptible partition: checkpoint on the notice, go on until time is up."""
import argparse
import logging
import multiprocessing as mp
import os
import signal
import tempfile
import time

import numpy as np

from helpers import corpus_worker, write_metrics
from partition import notify_step

log = logging.getLogger("tagger")


class Preemption:
    """Remembers that the scheduler has announced the end of the slot."""

    def __init__(self, signum=signal.SIGUSR1):
        self.pending = False
        signal.signal(signum, self._on_notice)

    def _on_notice(self, signum, frame):
        self.pending = True


class Tagger:
    def __init__(self, features=256, tags=24, lr=0.05):
        rng = np.random.default_rng(0)
        self.w = rng.normal(0, 0.01, (features, tags))
        self.lr = lr

    def step(self, x, y):
        z = x @ self.w
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(axis=1, keepdims=True)
        loss = -np.log(p[np.arange(len(y)), y] + 1e-9).mean()
        p[np.arange(len(y)), y] -= 1
        self.w -= self.lr * x.T @ p / len(y)
        return float(loss)

    def save(self, path):
        np.save(path, self.w)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--notice-after", type=float, default=7.0,
                        help="like sbatch --signal: seconds until SIGUSR1 reaches the step")
    parser.add_argument("--outdir", default=None)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s[%(process)d]: %(message)s")
    outdir = args.outdir or tempfile.mkdtemp(prefix="tagger_")

    ctx = mp.get_context("fork")
    batches = ctx.Queue(maxsize=8)
    metrics = ctx.SimpleQueue()
    slots = ctx.Semaphore(64)
    helpers = [ctx.Process(target=corpus_worker, name=f"reader-{i}", args=(i, batches), daemon=True)
               for i in range(args.readers)]
    helpers.append(ctx.Process(target=write_metrics, name="metrics", daemon=True,
                               args=(metrics, slots, os.path.join(outdir, "metrics.csv"))))
    for h in helpers:
        h.start()
    preemption = Preemption()
    partition = ctx.Process(target=notify_step, name="partition", daemon=True,
                            args=(os.getpid(), args.notice_after))
    partition.start()

    model = Tagger()
    for step in range(args.steps):
        x, y = batches.get()
        loss = model.step(x, y)
        slots.acquire()
        metrics.put((step, time.time(), loss))
        if step % 50 == 0:
            log.info("step %d loss %.4f", step, loss)
        if preemption.pending:
            preemption.pending = False
            model.save(os.path.join(outdir, f"step{step}.npy"))
            log.info("notice received, checkpoint of step %d written", step)
    model.save(os.path.join(outdir, "final.npy"))
    metrics.put(None)
    log.info("finished")


if __name__ == "__main__":
    main()
