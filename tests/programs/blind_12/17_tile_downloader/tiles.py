"""Tile pyramid: fetches a region as tiles, splits big tiles into quadrants."""
import hashlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

log = logging.getLogger("tiles")


class TileSource:
    """Stands for the map server: decoding a tile costs some time and CPU."""

    def __init__(self, latency):
        self.latency = latency

    def get(self, key, size):
        time.sleep(self.latency)
        seed = int(hashlib.md5(repr(key).encode()).hexdigest()[:8], 16)
        return np.random.default_rng(seed).integers(0, 255, (size, size), dtype=np.uint8)


class RegionFetcher:
    def __init__(self, source, workers=4, tile=256, max_tile=512):
        self.source = source
        self.tile = tile
        self.max_tile = max_tile
        self.pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="fetch")

    def fetch_tile(self, region, x, y, size):
        if size <= self.max_tile:
            return self.source.get((region, x, y, size), size)
        half = size // 2
        quads = [self.pool.submit(self.fetch_tile, region, x + dx, y + dy, half)
                 for dy in (0, half) for dx in (0, half)]
        a, b, c, d = [q.result() for q in quads]
        return np.block([[a, b], [c, d]])

    def fetch_region(self, region, tiles, size):
        futures = {self.pool.submit(self.fetch_tile, region, i * size, 0, size): i for i in range(tiles)}
        stats = np.zeros((tiles, 2))
        for fut in as_completed(futures):
            img = fut.result()
            stats[futures[fut]] = img.mean(), img.std()
        return stats

    def close(self):
        self.pool.shutdown()
