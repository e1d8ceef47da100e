import time

import torch
from torch.utils.data import Dataset


class TrackingSet(Dataset):
    def __init__(self, n, decode_ms):
        self.n, self.decode_ms = n, decode_ms

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.decode_ms / 1000)
        g = torch.Generator().manual_seed(i)
        return torch.randn(64, generator=g), torch.randn(4, generator=g)
