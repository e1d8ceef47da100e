import argparse
import logging
import multiprocessing as mp
import random
import time

from alerts import AlertScorer, make_batch

log = logging.getLogger("alerts")


class TrafficReplay:
    def __init__(self, bursts, size, seed=4):
        self.bursts = bursts
        self.size = size
        self.rng = random.Random(seed)

    def __iter__(self):
        for n in range(self.bursts):
            yield n, self.size + self.rng.randint(0, self.size)
            time.sleep(self.rng.uniform(9, 14))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bursts", type=int, default=9)
    p.add_argument("--size", type=int, default=40)
    p.add_argument("--workers", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with mp.Pool(args.workers, initializer=AlertScorer.install) as pool:
        for n, size in TrafficReplay(args.bursts, args.size):
            start = time.time()
            scores = pool.map(AlertScorer.score, [make_batch(n, i) for i in range(size)], chunksize=2)
            log.info("burst %d: %d batches in %.1fs, max %.2f", n, size, time.time() - start, max(scores))
    log.info("replay finished")


if __name__ == "__main__":
    main()
