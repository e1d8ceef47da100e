"""Synthetic CT volumes and their deterministic preprocessing."""
import time

import numpy as np


class VolumeReader:
    def __init__(self, side, delay):
        self.side, self.delay = side, delay

    def __call__(self, case):
        rng = np.random.default_rng(case)
        time.sleep(self.delay)
        grid = np.linspace(-1, 1, self.side, dtype=np.float32)
        z, y, x = np.meshgrid(grid, grid, grid, indexing="ij")
        centre = rng.uniform(-0.5, 0.5, 3)
        radius = 0.2 + 0.2 * rng.random()
        mask = (z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2 < radius ** 2
        image = mask + 0.4 * rng.standard_normal(mask.shape)
        return image.astype(np.float32), mask


class Preprocess:
    def __init__(self, side, delay):
        self.reader = VolumeReader(side, delay)

    def __call__(self, case):
        image, mask = self.reader(case)
        low, high = np.quantile(image, (0.005, 0.995))
        image = np.clip((image - low) / (high - low), 0, 1)
        for axis in range(3):
            image = (np.roll(image, 1, axis) + 2 * image + np.roll(image, -1, axis)) / 4
        return {"case": case, "image": image.astype(np.float32), "label": mask.astype(np.float32)}
