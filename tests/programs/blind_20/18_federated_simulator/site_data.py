"""Local volumes of a site and the cache of their pre-processed versions."""
import numpy as np
import torch


class VolumeCache:
    """Keeps pre-processed volumes up to the memory share of one simulated client."""

    def __init__(self, budget_mb):
        self.budget = budget_mb * 2 ** 20
        self.used = 0
        self.items = {}

    def get(self, key):
        return self.items.get(key)

    def add(self, key, volume):
        size = volume.numel() * volume.element_size()
        if self.used + size > self.budget:
            raise MemoryError(f"cannot cache volume {key}: {self.used / 2 ** 20:.0f} MiB of "
                              f"{self.budget / 2 ** 20:.0f} MiB in use")
        self.used += size
        self.items[key] = volume


class SiteDataset:
    def __init__(self, site, cases, spacing_mm, budget_mb, seed):
        self.site = site
        self.rng = np.random.default_rng(seed)
        self.cases = cases
        self.edge = int(96 / spacing_mm)
        self.cache = VolumeCache(budget_mb)

    def _read(self, case):
        volume = self.rng.normal(size=(self.edge,) * 3).astype(np.float32)
        return torch.from_numpy((volume - volume.mean()) / volume.std())

    def load(self, case):
        volume = self.cache.get(case)
        if volume is None:
            volume = self._read(case)
            self.cache.add(case, volume)
        return volume

    def patches(self, round_number, per_round, size=24):
        first = (round_number - 1) * per_round
        for i in range(first, first + per_round):
            volume = self.load(f"{self.site}_case_{i % self.cases:03d}")
            z, y, x = self.rng.integers(0, self.edge - size + 1, size=3)
            patch = volume[z:z + size, y:y + size, x:x + size]
            yield patch[None, None], (patch > 0.5).float()[None, None]
