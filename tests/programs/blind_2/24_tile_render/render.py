import argparse
import logging
from multiprocessing import Pool

from tiles import Tile, TileError, render

log = logging.getLogger("render")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--zoom", type=int, default=5)
    p.add_argument("--procs", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    n = 2 ** args.zoom
    rows, skipped = 0, 0
    with Pool(args.procs) as pool:
        for y in range(n):
            pending = [pool.apply_async(render, (Tile(args.zoom, x, y),)) for x in range(n)]
            for job in pending:
                try:
                    job.get()
                except TileError as exc:
                    skipped += 1
                    log.warning("skipped: %s", exc)
            rows += 1
            if rows % 4 == 0:
                log.info("%d of %d rows, %d tiles skipped", rows, n, skipped)
    log.info("zoom %d rendered", args.zoom)


if __name__ == "__main__":
    main()
