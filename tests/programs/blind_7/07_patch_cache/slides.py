"""Random patches from large slides; decoded tiles are kept by each loader worker."""
import time
from functools import lru_cache

import numpy as np
import torch
from torch.utils.data import Dataset

TILE = 512


@lru_cache(maxsize=160)
def decode_tile(slide, row, col):
    """Stands for the JPEG2000 decoder: slow, and always the same for the same tile."""
    rng = np.random.default_rng((slide * 1009 + row) * 1013 + col)
    tile = rng.integers(0, 255, (TILE, TILE, 3), dtype=np.uint8)
    for _ in range(3):
        tile = ((tile.astype(np.float32) + np.roll(tile, 1, 0)) / 2).astype(np.uint8)
    time.sleep(0.03)
    return tile


class PatchDataset(Dataset):
    def __init__(self, slides=12, rows=8, cols=8, length=4000, side=64):
        self.shape = (slides, rows, cols)
        self.length = length
        self.side = side

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        slide, row, col = (int(rng.integers(0, n)) for n in self.shape)
        tile = decode_tile(slide, row, col)
        y, x = rng.integers(0, TILE - self.side, 2)
        patch = tile[y : y + self.side, x : x + self.side].copy()
        return torch.from_numpy(patch).permute(2, 0, 1).float() / 255, slide % 2
