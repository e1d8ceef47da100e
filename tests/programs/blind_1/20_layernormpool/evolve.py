"""Evolution strategy, the population is evaluated in a process pool."""
import argparse
import logging
import multiprocessing as mp
import os
import time
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OMP_WAIT_POLICY", "active")  # as on the cluster

from policy import initializer, rollout  # noqa: E402

log = logging.getLogger("es")


def generation(ex, g, n, steps):
    t0 = time.time()
    res = list(ex.map(rollout, [(1000 * g + i, steps) for i in range(n)]))
    dt = time.time() - t0
    log.info("generation %d: %d rollouts in %.1fs, %.0f steps/s per process", g, n, dt,
             sum(r[1] for r in res) / len(res))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--population", type=int, default=8)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--threads", type=int, default=16, help="cores of the node")
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--generations", type=int, default=60)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with ProcessPoolExecutor(args.workers, mp_context=mp.get_context("fork"), initializer=initializer,
                             initargs=(args.threads,)) as ex:
        for g in range(args.generations):
            generation(ex, g, args.population, args.steps)


if __name__ == "__main__":
    main()
