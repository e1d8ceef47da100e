import logging
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from .tiles import load_tile

log = logging.getLogger("terrain.statistics")
SAMPLE_TILES = 200


def tile_moments(index):
    tile = load_tile(index)
    return tile.mean(), (tile**2).mean()


def collect_moments(tiles, workers=3):
    with ProcessPoolExecutor(max_workers=workers) as pool:
        moments = list(pool.map(tile_moments, range(tiles), chunksize=10))
    mean = np.mean([m for m, _ in moments])
    square = np.mean([s for _, s in moments])
    log.info("statistics over %d tiles", tiles)
    return mean, np.sqrt(square - mean**2)


MEAN, STD = collect_moments(SAMPLE_TILES)
