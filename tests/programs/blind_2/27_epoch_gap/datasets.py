import time

import numpy as np
import torch
from torch.utils.data import Dataset


class SequenceDataset(Dataset):
    """Tracking sequences; every worker opens its own annotation database."""

    def __init__(self, n, index_seconds):
        self.n = n
        self.index_seconds = index_seconds
        self.db = None

    def _open(self):
        time.sleep(self.index_seconds)
        return np.random.default_rng(0).random((2000, 4)).astype(np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.db is None:
            self.db = self._open()
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, 48, 48, generator=g), torch.from_numpy(self.db[i % len(self.db)])
