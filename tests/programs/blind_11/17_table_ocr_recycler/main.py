"""Run the page recogniser over a stack of scanned tables with a pool of processes."""
import argparse
import logging
import multiprocessing as mp
import os
import time
from collections import Counter

from recogniser import init_process, recognise_page

log = logging.getLogger("tableocr")


def page_stream(num_pages, seed=0):
    for i in range(num_pages):
        yield {"page": i, "seed": seed * 100003 + i, "rows": 180 + (i * 37) % 120}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1.75)
    parser.add_argument("--pages-per-process", type=int, default=12,
                        help="replace a process after that many pages")
    parser.add_argument("--batch", type=int, default=24)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO,
                        format="%(asctime)s %(levelname)s %(processName)s[%(process)d] %(message)s")

    deadline = time.time() + args.minutes * 60
    served = Counter()
    pages = page_stream(10 ** 6)
    done = 0
    ctx = mp.get_context("fork")
    with ctx.Pool(args.processes, initializer=init_process,
                  maxtasksperchild=args.pages_per_process) as pool:
        while time.time() < deadline:
            batch = [next(pages) for _ in range(args.batch)]
            for cells, pid in pool.imap_unordered(recognise_page, batch):
                served[pid] += 1
                done += 1
            log.info("%d pages done, %d processes used so far, last page %d cells",
                     done, len(served), cells)
        pool.close()
        pool.join()
    log.info("finished: %d pages, %d processes, parent %d", done, len(served), os.getpid())


if __name__ == "__main__":
    main()
