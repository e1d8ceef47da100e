"""Computes the exclusion layer of one local regulation on the analysis grid."""
import hashlib

import numpy as np

GRID = (512, 512)


def local_exclusion(regulation, grid=GRID):
    seed = int(hashlib.md5(regulation["fips"].encode()).hexdigest()[:8], 16)
    rng = np.random.default_rng(seed)
    cols = np.arange(grid[1], dtype=np.float32)
    rows = np.arange(grid[0], dtype=np.float32)
    layer = np.zeros(grid, dtype=np.float32)
    for cx, cy in rng.uniform(0, grid[0], (regulation["structures"], 2)):
        dx, dy = np.abs(cols - cx), np.abs(rows - cy)
        near_x, near_y = dx < regulation["setback"], dy < regulation["setback"]
        layer[np.ix_(near_y, near_x)] = 1.0
    return layer
