"""Run the nightly fits in a process pool."""
import argparse
import logging
from concurrent.futures import ProcessPoolExecutor, as_completed
import multiprocessing as mp

import torch

from jobs import fit

log = logging.getLogger("nightly")


def plan(seconds):
    jobs = [(f"probe-{i}", 0.05, 2.0) for i in range(3)]
    return jobs + [("baseline", 0.05, seconds)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--seconds", type=float, default=75)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    with ProcessPoolExecutor(args.workers, mp_context=mp.get_context("fork")) as pool:
        futures = [pool.submit(fit, job) for job in plan(args.seconds)]
        for f in as_completed(futures):
            name, steps, loss = f.result()
            log.info("%s finished: %d steps, loss %.4f", name, steps, loss)
    log.info("all fits finished")


if __name__ == "__main__":
    main()
