import argparse
import logging
import time

import numpy as np

from worker_manager import LocalWorker

log = logging.getLogger("pool")


def collect(workers, jobs):
    results = []
    for start in range(0, jobs, len(workers)):
        for k, w in enumerate(workers):
            w.run(start + k)
        results += [w.result() for w in workers]
    return results


def train(results, seconds):
    x = np.array([v for _, v in results])
    end, w = time.time() + seconds, 0.0
    while time.time() < end:
        w += 0.01 * float((x - w).mean())
        time.sleep(0.005)
    return w


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--jobs", type=int, default=24)
    ap.add_argument("--train-seconds", type=float, default=10)
    ap.add_argument("--max-time", type=float, default=85)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    workers = [LocalWorker(r) for r in range(args.workers)]
    begin, it = time.time(), 0
    try:
        while time.time() - begin < args.max_time:
            for w in workers:
                w.resume()
            results = collect(workers, args.jobs)
            for w in workers:
                w.pause()
            log.info("iteration %d: %d results, runners suspended for training", it, len(results))
            w_new = train(results, args.train_seconds)
            log.info("iteration %d: trained, baseline %.2f", it, w_new)
            it += 1
    finally:
        for w in workers:
            w.resume()
            w.run(None)


if __name__ == "__main__":
    main()
