import numpy as np
import torch
from torch.utils.data import Dataset


class RenderCache:
    def __init__(self):
        self.images = {}

    def get(self, key, render):
        if key not in self.images:
            self.images[key] = render(key)
        return self.images[key]


class PoseDataset(Dataset):
    def __init__(self, n_views, side):
        self.n_views, self.side = n_views, side
        self.cache = RenderCache()

    def __len__(self):
        return self.n_views

    def render(self, view):
        rng = np.random.default_rng(view)
        return rng.random((3, self.side, self.side), dtype=np.float32)

    def __getitem__(self, i):
        img = self.cache.get(i, self.render)
        y, x = np.random.randint(0, self.side - 16, 2)
        return torch.from_numpy(img[:, y:y + 16, x:x + 16].copy()), i % 30
