"""Grid search over a few processes."""
import argparse
import itertools
import logging
import multiprocessing as mp
import time

import torch

from model import ACTIVATIONS, fit

log = logging.getLogger("sweep")


def trial_worker(tasks, results):
    torch.set_num_threads(1)
    for cfg in iter(tasks.get, None):
        cfg["act_fn"] = ACTIVATIONS[cfg["activation"]]
        time.sleep(1.2)  # data staging
        score = fit(cfg)
        results.put({"config": cfg, "score": score})


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--activations", nargs="+", default=["relu", "tanh", "swish", "gelu"])
    ap.add_argument("--lrs", nargs="+", type=float, default=[0.3, 0.1, 0.03])
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    grid = [{"activation": a, "lr": lr, "hidden": h, "seed": 0}
            for a, lr, h in itertools.product(args.activations, args.lrs, (32, 64))]
    tasks, results = mp.Queue(), mp.Queue()
    for cfg in grid:
        tasks.put(cfg)
    workers = [mp.Process(target=trial_worker, args=(tasks, results), name=f"trial-{i}") for i in range(args.workers)]
    for w in workers:
        w.start()
    for _ in workers:
        tasks.put(None)

    best = None
    for n in range(len(grid)):
        r = results.get()
        log.info("trial %d/%d %s lr=%g -> %.3f", n + 1, len(grid), r["config"]["activation"],
                 r["config"]["lr"], r["score"])
        if best is None or r["score"] > best["score"]:
            best = r
    for w in workers:
        w.join()
    log.info("best %s", best)


if __name__ == "__main__":
    main()
