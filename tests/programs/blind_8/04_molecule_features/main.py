import argparse
import logging
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from fingerprints import describe

log = logging.getLogger("featurize")


class Featurizer:
    def __init__(self, workers, recycle):
        self.pool = ProcessPoolExecutor(max_workers=workers, max_tasks_per_child=recycle)

    def run(self, molecules):
        futures = [self.pool.submit(describe, i, size) for i, size in enumerate(molecules)]
        rows = []
        start = time.time()
        for future in futures:
            rows.append(future.result())
            if len(rows) % 5 == 0:
                log.info("%d/%d molecules, %.1f/s", len(rows), len(futures), len(rows) / (time.time() - start))
        return np.stack(rows)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--molecules", type=int, default=400)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--recycle-after", type=int, default=8)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    sizes = np.random.default_rng(3).integers(20, 60, args.molecules).tolist()
    table = Featurizer(args.workers, args.recycle_after).run(sizes)
    log.info("feature table %s", table.shape)


if __name__ == "__main__":
    main()
