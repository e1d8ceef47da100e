"""Synthetic slide reader: cuts tiles out of a slide and scores them for tissue content."""
import time
import zlib

import numpy as np

TILE = 192
SLIDE_LATENCY = 0.02  # network share


HEADERS = {
    "TCGA-A2-A0T2": (12, 14),
    "TCGA-A2-A0YM": (11, 13),
    "TCGA-BH-A0B3": (21, 20),
    "TCGA-E2-A14N": (20, 24),
}


def slide_grid(slide_id):
    """Rows and columns of tiles according to the slide's own header."""
    return HEADERS[slide_id]


def read_tile(slide_id, row, col, size=TILE):
    time.sleep(SLIDE_LATENCY)
    seed = zlib.crc32(f"{slide_id}/{row}/{col}".encode())
    rng = np.random.default_rng(seed)
    base = rng.integers(120, 255, size=(size, size, 3)).astype(np.float32)
    blobs = rng.random((size // 8, size // 8)) > 0.6
    mask = np.kron(blobs, np.ones((8, 8)))
    base[..., 1] -= 70 * mask
    return base.clip(0, 255)


def optical_density(tile):
    return -np.log((tile + 1.0) / 256.0)


def score_tile(slide_id, row, col):
    """Returns what the report needs for one tile."""
    tile = read_tile(slide_id, row, col)
    od = optical_density(tile)
    for _ in range(3):
        od = (od + np.roll(od, 1, 0) + np.roll(od, 1, 1) + np.roll(od, -1, 0) + np.roll(od, -1, 1)) / 5
    tissue = float((od.mean(axis=2) > 0.35).mean())
    hist, _ = np.histogram(od, bins=128, range=(0.0, 2.5))
    return {
        "slide": slide_id,
        "row": row,
        "col": col,
        "tissue": tissue,
        "hist": hist.tolist(),
    }
