"""OCR of scanned pages. Workers are replaced after a few pages, the recogniser fragments its heap."""
import argparse
import logging
import multiprocessing as mp
import os
import time

import numpy as np


def start_worker():
    logging.info("worker %d ready", os.getpid())


def recognise(page):
    rng = np.random.default_rng(page)
    scan = rng.integers(0, 255, (1400, 1000), dtype=np.uint8)
    lines = 0
    for top in range(0, 1400, 50):
        block = scan[top:top + 50].astype(np.float32)
        lines += int((block - block.mean()).std() > 50)
        time.sleep(0.02)
    return page, lines


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--pages", type=int, default=240)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--pages-per-worker", type=int, default=4)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(processName)s] %(message)s")
    started, done = time.monotonic(), 0
    with mp.Pool(args.processes, initializer=start_worker, maxtasksperchild=args.pages_per_worker) as pool:
        for page, lines in pool.imap_unordered(recognise, range(args.pages), chunksize=1):
            done += 1
            if done % 20 == 0:
                logging.info("%d/%d pages, %.2f pages/s", done, args.pages, done / (time.monotonic() - started))
        pool.close()
        pool.join()


if __name__ == "__main__":
    main()
