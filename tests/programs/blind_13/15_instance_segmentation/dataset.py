import numpy as np
import torch
from torch.utils.data import Dataset


class ShapesDataset(Dataset):
    """Images with a few discs and boxes and their masks."""

    def __init__(self, count, size, seed):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed * 100_003 + i)
        yy, xx = np.mgrid[:self.size, :self.size]
        image = rng.normal(0.3, 0.1, (3, self.size, self.size)).astype(np.float32)
        mask = np.zeros((self.size, self.size), dtype=np.int64)
        for _ in range(rng.integers(2, 6)):
            kind, (cy, cx), r = rng.integers(1, 4), rng.integers(10, self.size - 10, 2), rng.integers(5, 16)
            if kind == 1:
                inside = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
            elif kind == 2:
                inside = (abs(yy - cy) < r) & (abs(xx - cx) < r)
            else:
                inside = abs(yy - cy) + abs(xx - cx) < r
            image[:, inside] += rng.normal(0.3, 0.2, (3, 1)).astype(np.float32)
            mask[inside] = kind
        return torch.from_numpy(image), torch.from_numpy(mask)
