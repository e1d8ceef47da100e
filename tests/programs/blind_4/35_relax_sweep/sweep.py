"""Parameter sweep of a relaxation solver; the fine grids take far longer than the coarse ones."""
import argparse
import logging
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

log = logging.getLogger("sweep")


def relax(grid, sweeps):
    u = np.zeros((grid, grid))
    u[0] = 1.0
    started = time.monotonic()
    for _ in range(sweeps):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        time.sleep(0.001)
    return grid, float(u[grid // 2].mean()), time.monotonic() - started


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--grids", type=int, nargs="+", default=[320, 16, 20, 24, 28, 32, 36, 40, 44, 48])
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with ProcessPoolExecutor(args.workers) as pool:
        futures = {pool.submit(relax, g, 60 * g): g for g in sorted(args.grids, reverse=True)}
        for n, future in enumerate(as_completed(futures), 1):
            grid, value, seconds = future.result()
            log.info("%d/%d: grid %d value %.5f in %.1f s", n, len(futures), grid, value, seconds)


if __name__ == "__main__":
    main()
