from collections import OrderedDict

import numpy as np
import torch
from torch.utils.data import Dataset


class VolumeCache:
    """Keeps the most recently used volumes of one worker."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.items = OrderedDict()

    def get(self, key, make):
        if key in self.items:
            self.items.move_to_end(key)
            return self.items[key]
        value = make(key)
        self.items[key] = value
        if len(self.items) > self.capacity:
            self.items.popitem(last=False)
        return value


class PatchDataset(Dataset):
    def __init__(self, n_volumes, patches, side, capacity, patch=16):
        self.n_volumes = n_volumes
        self.patches = patches
        self.side = side
        self.patch = patch
        self.cache = VolumeCache(capacity)

    def __len__(self):
        return self.n_volumes * self.patches

    def _load(self, v):
        rng = np.random.default_rng(v)
        return rng.random((self.side, self.side, self.side), dtype=np.float32)

    def __getitem__(self, i):
        vol = self.cache.get(i % self.n_volumes, self._load)
        z = (i * 7) % (self.side - self.patch)
        x = vol[z:z + self.patch, z:z + self.patch, z:z + self.patch]
        return torch.from_numpy(x.copy()), i % 2
