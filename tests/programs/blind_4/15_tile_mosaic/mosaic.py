"""Blend drone images into an orthomosaic, one tile per task."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np

from limits import apply_cap

log = logging.getLogger("mosaic")
IMAGE = 900


def images_of(tile):
    return 4 + (tile * 7) % 5 if tile != 5 else 60


def blend(tile):
    started = time.monotonic()
    rng = np.random.default_rng(tile)
    stack = []
    for _ in range(images_of(tile)):
        stack.append(rng.random((IMAGE, IMAGE), dtype=np.float32))
        time.sleep(0.05)
    layers = np.stack(stack)
    weights = np.linspace(0.5, 1.0, len(stack), dtype=np.float32)[:, None, None]
    out = (layers * weights).sum(0) / weights.sum()
    logging.info("tile %02d: %d images, %.1f s", tile, len(stack), time.monotonic() - started)
    return tile, float(out.mean())


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--tiles", type=int, default=24)
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--memory-mb", type=int, default=140)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(processName)s] %(message)s")

    started = time.monotonic()
    with mp.Pool(args.processes, initializer=apply_cap, initargs=(args.memory_mb,)) as pool:
        results = pool.map(blend, range(args.tiles), chunksize=1)
    log.info("%d tiles blended in %.1f s", len(results), time.monotonic() - started)


if __name__ == "__main__":
    main()
