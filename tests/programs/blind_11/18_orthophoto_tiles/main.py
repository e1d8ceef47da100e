"""Render orthophoto tiles in a process pool and write them into a tile archive."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

from archive import TileArchive
from render import TileSpec, init_renderer, render_tile, calibrate

log = logging.getLogger("ortho")


def plan(columns, rows, zoom):
    for y in range(rows):
        for x in range(columns):
            yield TileSpec(zoom=zoom, x=x, y=y)


class Progress:
    def __init__(self, total, every=20):
        self.total, self.every, self.count, self.start = total, every, 0, time.time()

    def step(self):
        self.count += 1
        if self.count % self.every == 0:
            rate = self.count / (time.time() - self.start)
            log.info("archived %d/%d tiles (%.1f tiles/s)", self.count, self.total, rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--zoom", type=int, default=17)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--output", default=None)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(message)s")

    out = args.output or os.path.join(tempfile.mkdtemp(prefix="ortho_"), "tiles.mbt")
    params = calibrate(seconds=4.0)
    log.info("camera calibrated: %s", params)

    progress = Progress(args.columns * args.rows)
    tiles = plan(args.columns, args.rows, args.zoom)
    with mp.Pool(args.jobs, initializer=init_renderer, initargs=(params,)) as pool, \
            TileArchive(out) as archive:
        for spec, pixels in pool.imap(render_tile, tiles):
            archive.add(spec, pixels)
            progress.step()
    log.info("wrote %s", out)


if __name__ == "__main__":
    main()
