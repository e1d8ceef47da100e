"""Train a small detector head; a second process evaluates every new checkpoint."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time

import numpy as np

import checkpoints

DIM = 128


def data(rng, n):
    x = rng.standard_normal((n, DIM)).astype(np.float32)
    return x, (x[:, :10].sum(1) > 0).astype(np.float32)


def train(args, model_dir):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s train %(message)s")
    log = logging.getLogger()
    rng = np.random.default_rng(0)
    w = np.zeros(DIM, np.float32)
    for step in range(1, args.max_steps + 1):
        x, y = data(rng, args.batch_size)
        p = 1 / (1 + np.exp(-x @ w))
        w -= 0.02 * x.T @ (p - y) / len(y)
        time.sleep(args.step_time)
        if step % 50 == 0:
            log.info("step %d loss %.4f", step, float(-np.log(np.where(y > 0, p, 1 - p) + 1e-7).mean()))
        if step % args.save_every == 0:
            log.info("saved %s", checkpoints.save(model_dir, step, w=w))


def evaluate(args, model_dir):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s eval %(message)s")
    log = logging.getLogger()
    rng = np.random.default_rng(1)
    x, y = data(rng, args.eval_samples)
    log.info("waiting for new checkpoints in %s", model_dir)
    for path in checkpoints.checkpoints_iterator(model_dir):
        with np.load(path) as f:
            step, w = int(f["step"]), f["w"]
        hits = 0
        for i in range(0, len(x), 500):
            hits += int((((x[i:i + 500] @ w) > 0) == (y[i:i + 500] > 0)).sum())
            time.sleep(0.05)
        log.info("step %d: AP %.4f", step, hits / len(x))
        if step >= args.max_steps:
            log.info("evaluation of the last checkpoint done")
            break
        log.info("waiting for new checkpoints in %s", model_dir)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--max-steps", type=int, default=900)
    p.add_argument("--save-every", type=int, default=300)
    p.add_argument("--step-time", type=float, default=0.11)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--eval-samples", type=int, default=20000)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="efficientdet_") as model_dir:
        jobs = [mp.Process(target=fn, args=(args, model_dir), name=name)
                for name, fn in (("train", train), ("eval", evaluate))]
        for j in jobs:
            j.start()
        for j in jobs:
            j.join()
        raise SystemExit(max(abs(j.exitcode) for j in jobs))


if __name__ == "__main__":
    main()
