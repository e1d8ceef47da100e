"""Which tiles of each zoom level carry data, and how heavy each of them is.

The table is the same for every export, so it is computed when the module is first used.
"""
import logging
import math
import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np

log = logging.getLogger("export.pyramid")

BOUNDS = (174.6, -41.4, 175.0, -41.1)
LEVELS = range(8, 15)


def lonlat_to_tile(lon, lat, zoom):
    n = 2 ** zoom
    x = int((lon + 180.0) / 360.0 * n)
    r = math.radians(lat)
    y = int((1.0 - math.asinh(math.tan(r)) / math.pi) / 2.0 * n)
    return x, y


def level_table(zoom):
    x0, y1 = lonlat_to_tile(BOUNDS[0], BOUNDS[1], zoom)
    x1, y0 = lonlat_to_tile(BOUNDS[2], BOUNDS[3], zoom)
    xs, ys = np.arange(x0, x1 + 1), np.arange(y0, y1 + 1)
    weight = np.abs(np.sin(xs[:, None] * 0.7) * np.cos(ys[None, :] * 0.3))
    keep = [(int(x), int(y), float(w)) for x, row in zip(xs, weight) for y, w in zip(ys, row) if w > 0.02]
    return zoom, keep


def _build():
    table = {}
    with ProcessPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for zoom, tiles in pool.map(level_table, LEVELS):
            log.info("zoom %d: %d tiles", zoom, len(tiles))
            table[zoom] = tiles
    return table


log.info("building tile table for zoom %d-%d", LEVELS[0], LEVELS[-1])
TILES = _build()
