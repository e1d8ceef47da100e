import time

import torch
from torch.utils.data import Dataset


class PassageDataset(Dataset):
    """Reads passages from a remote store, one request for each."""

    def __init__(self, n, latency=0.05):
        self.n = n
        self.latency = latency

    def __len__(self):
        return self.n

    def _fetch(self, i):
        time.sleep(self.latency)
        return torch.full((64,), (i % 97) / 97.0)

    def __getitem__(self, i):
        return {"id": i, "features": self._fetch(i)}
