"""Fit a ridge regressor by SGD and keep weight histograms for later inspection."""
import argparse
import logging
import tempfile
import time

import numpy as np

from metrics import MetricsBuffer

log = logging.getLogger("fit")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=20000)
    p.add_argument("--dim", type=int, default=2000)
    p.add_argument("--flush-every", type=float, default=0.5, help="seconds")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    rng = np.random.default_rng(0)
    truth, w = rng.normal(size=args.dim), np.zeros(args.dim)
    out = tempfile.NamedTemporaryFile(prefix="metrics-", suffix=".bin")
    metrics = MetricsBuffer(out.name, args.flush_every)
    metrics.install()
    for step in range(args.steps):
        x = rng.normal(size=(8, args.dim))
        err = x @ (w - truth)
        w -= 1e-4 * (x.T @ err + 0.01 * w)
        metrics.append(step, "weight", w)
        metrics.append(step, "error", err)
        time.sleep(0.002)
        if step % 50 == 0:
            log.info("step %d rmse %.4f, %d records on disk", step, np.sqrt((err ** 2).mean()), metrics.flushed)
    metrics.flush()


if __name__ == "__main__":
    main()
