"""Tile coordinates and pixels of a slide."""
import numpy as np

SLIDES = [("case_0117_A", 460), ("case_0117_B", 500), ("case_0118_A", 80), ("case_0119_A", 610),
          ("case_0119_B", 140), ("case_0120_A", 420)]


class SlideTiles:
    def __init__(self, name, n_tiles, tile_size):
        self.name, self.n_tiles, self.tile_size = name, n_tiles, tile_size
        self.rng = np.random.default_rng(abs(hash_name(name)))

    def contour_shards(self, world_size):
        """Tiles are ordered by tissue contour; every rank embeds one run of them."""
        return np.array_split(np.arange(self.n_tiles), world_size)

    def read(self, index):
        rng = np.random.default_rng(index)
        return rng.integers(0, 255, (self.tile_size, self.tile_size, 3), dtype=np.uint8)

    def pyramid_levels(self, index):
        """Tiles at the rim of the last contours are read on more levels."""
        return 3 if index > 0.66 * self.n_tiles else 1


def hash_name(name):
    value = 0
    for ch in name:
        value = (value * 131 + ord(ch)) % (2 ** 31)
    return value
