"""Generates vector tiles of all zoom levels with a pool of workers."""
import argparse
import logging
import os
import tempfile
import time

from generator import generate_tiles
from storage import Storage
from tiles import Catalog, layer_from_seed, tiles_for_zooms

log = logging.getLogger("tilekit")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--num-processes", "-n", type=int, default=4)
    p.add_argument("--min-zoom", type=int, default=4)
    p.add_argument("--max-zoom", type=int, default=12)
    p.add_argument("--features", type=int, default=30000)
    p.add_argument("--storage", default=None)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    folder = args.storage or tempfile.mkdtemp(prefix="tiles-")

    t0 = time.time()
    catalog = Catalog(layer_from_seed(args.seed, args.features), args.max_zoom)
    log.info("indexed %d features in %.1f s", args.features, time.time() - t0)

    storage = Storage(os.path.join(folder, "tiles.bin"))
    total = sum(4 ** z for z in range(args.min_zoom, args.max_zoom + 1))
    log.info("generating %d tiles with %d processes", total, args.num_processes)
    generate_tiles(catalog, tiles_for_zooms(args.min_zoom, args.max_zoom), total, args.num_processes, storage)
    storage.close()


if __name__ == "__main__":
    main()
