import numpy as np
import torch
from torch.utils.data import Dataset


class TileDataset(Dataset):
    def __init__(self, root_seed, n_tiles=96, size=32):
        rng = np.random.default_rng(root_seed)
        self.tiles = rng.random((n_tiles, 1, size, size), dtype=np.float32)
        self.labels = rng.integers(0, 4, n_tiles)

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, i):
        x = torch.from_numpy(self.tiles[i])
        if i % 2:
            x = torch.flip(x, (-1,))
        return x, int(self.labels[i])
