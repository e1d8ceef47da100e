import argparse
import logging
import multiprocessing as mp
import time

from rendering import render

log = logging.getLogger("render")


class RenderFarm:
    def __init__(self, workers, pages_per_process):
        self.pool = mp.get_context("fork").Pool(workers, maxtasksperchild=pages_per_process)

    def run(self, pages):
        start = time.time()
        seen = set()
        for n, (pid, checksum) in enumerate(self.pool.imap_unordered(render, range(pages)), 1):
            seen.add(pid)
            if n % 25 == 0:
                log.info("%d/%d pages, %.1f/s, %d processes so far", n, pages, n / (time.time() - start), len(seen))
        self.pool.close()
        self.pool.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pages", type=int, default=700)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--pages-per-process", type=int, default=6)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    RenderFarm(args.workers, args.pages_per_process).run(args.pages)
    log.info("done")


if __name__ == "__main__":
    main()
