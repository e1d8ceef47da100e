"""Reads and checks polygon annotations."""
import warnings

import numpy as np


class AnnotationSource:
    """Endless stream of annotation records, as the labelling service delivers them."""

    def __init__(self, seed, width, height, vertices=250):
        self.rng = np.random.default_rng(seed)
        self.width, self.height, self.vertices = width, height, vertices
        self.serial = 0

    def polygon(self):
        centre = self.rng.uniform((0, 0), (self.width, self.height))
        return (centre + self.rng.normal(0, 40, (self.vertices, 2))).round(2).tolist()

    def __iter__(self):
        while True:
            self.serial += 1
            yield {"image_id": self.serial, "category": int(self.rng.integers(80)), "segmentation": self.polygon()}


class AnnotationParser:
    def __init__(self, width, height, grid):
        self.limits = np.array([width - 1.0, height - 1.0])
        self.width, self.height, self.grid = width, height, grid

    def clip(self, record):
        polygon = np.asarray(record["segmentation"])
        inside = polygon.clip(0.0, self.limits)
        if (inside != polygon).any():
            warnings.warn(f"image {record['image_id']}: polygon {record['segmentation']} leaves the image "
                          f"({self.width}x{self.height}), clipped")
        return inside

    def rasterize(self, polygon):
        cells = np.zeros((self.grid, self.grid), dtype=np.float32)
        columns = (polygon[:, 0] * self.grid / self.width).astype(int)
        rows = (polygon[:, 1] * self.grid / self.height).astype(int)
        np.add.at(cells, (rows, columns), 1.0)
        return cells.ravel()

    def __call__(self, record):
        return self.rasterize(self.clip(record)), record["category"]
