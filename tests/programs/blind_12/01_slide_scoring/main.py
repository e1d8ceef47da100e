"""Score all tiles of the slides in a manifest with a pool of workers and write a report."""
import argparse
import json
import logging
import os
import tempfile
from multiprocessing import Pool

from report import SlideReport
from tiles import score_tile, slide_grid

log = logging.getLogger("score")

MANIFEST = {
    "TCGA-A2-A0T2": [12, 14],
    "TCGA-A2-A0YM": [11, 13],
    "TCGA-BH-A0B3": [20, 20],
    "TCGA-E2-A14N": [20, 24],
}


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--out", default=None)
    p.add_argument("--manifest", default=None, help="json file {slide: [rows, cols]}")
    return p.parse_args()


def tile_jobs(manifest):
    for slide in manifest:
        rows, cols = slide_grid(slide)
        for col in range(cols):
            for row in range(rows):
                yield slide, row, col


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    manifest = MANIFEST
    if args.manifest:
        with open(args.manifest) as f:
            manifest = json.load(f)
    out = args.out or os.path.join(tempfile.mkdtemp(prefix="slides_"), "tiles.csv")
    report = SlideReport(manifest, out)
    pool = Pool(args.workers)
    jobs = 0
    for job in tile_jobs(manifest):
        pool.apply_async(score_tile, job, callback=report.add)
        jobs += 1
    log.info("%d tiles queued on %d workers, writing %s", jobs, args.workers, out)
    pool.close()
    pool.join()
    report.close()
    log.info("all slides done")


if __name__ == "__main__":
    main()
