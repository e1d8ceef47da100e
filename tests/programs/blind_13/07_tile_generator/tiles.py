import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Tile:
    zoom: int
    x: int
    y: int


def tiles_for_zooms(min_zoom, max_zoom):
    for zoom in range(min_zoom, max_zoom + 1):
        for x in range(2 ** zoom):
            for y in range(2 ** zoom):
                yield Tile(zoom, x, y)


def layer_from_seed(seed, count):
    """Points of a synthetic layer in web mercator, 0..1, clustered like towns."""
    rng = np.random.default_rng(seed)
    centers = rng.random((40, 2))
    return np.clip(centers[rng.integers(40, size=count)] + rng.normal(0, 0.02, (count, 2)), 0, 0.999999)


class Catalog:
    """Maps every tile to the features in it."""

    def __init__(self, points, max_zoom):
        self.points = points
        self.index = {}
        for i, (px, py) in enumerate(points):
            for zoom in range(max_zoom + 1):
                n = 2 ** zoom
                key = (zoom, int(math.floor(px * n)), int(math.floor(py * n)))
                self.index.setdefault(key, []).append(i)

    def features(self, tile):
        return self.index.get((tile.zoom, tile.x, tile.y), ())


def encode(tile, catalog, limit=64):
    ids = catalog.features(tile)
    if not ids:
        return b""
    n = 2 ** tile.zoom
    out = bytearray()
    for i in ids[:limit]:
        px, py = catalog.points[i]
        out += int((px * n - tile.x) * 4096).to_bytes(2, "big") + int((py * n - tile.y) * 4096).to_bytes(2, "big")
    return bytes(out)
