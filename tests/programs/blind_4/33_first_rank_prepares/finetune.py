"""Three independent seeds of the same fine-tuning job on one machine, sharing a dataset cache."""
import argparse
import logging
import multiprocessing as mp
import pathlib
import tempfile
import time

import numpy as np

from cache import prepare


def job(seed, cache_dir, splits, epochs):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [seed {seed}] %(message)s", force=True)
    meta = prepare(cache_dir, splits)
    rng, w = np.random.default_rng(seed), np.zeros((64, 8))
    for epoch in range(epochs):
        for split in meta:
            x = np.load(pathlib.Path(cache_dir) / f"split-{split}.npy", mmap_mode="r")
            batch = x[rng.integers(0, len(x), 256)]
            w -= 0.01 * batch.T @ (batch @ w - batch[:, :8]) / len(batch)
            time.sleep(0.01)
        logging.info("epoch %d residual %.4f", epoch, float(np.abs(batch @ w - batch[:, :8]).mean()))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--splits", type=int, default=40)
    p.add_argument("--epochs", type=int, default=60)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="dataset-") as tmp:
        procs = [mp.Process(target=job, args=(s, tmp, args.splits, args.epochs)) for s in range(args.seeds)]
        for proc in procs:
            proc.start()
        for proc in procs:
            proc.join()


if __name__ == "__main__":
    main()
