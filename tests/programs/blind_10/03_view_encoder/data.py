import time

import torch
from torch.utils.data import Dataset


class TwoViewDataset(Dataset):
    """Synthetic feature vectors; every item gives two noisy views of the same sample."""

    def __init__(self, size=6000, dim=48, read_delay=0.004):
        gen = torch.Generator().manual_seed(5)
        self.base = torch.randn(size, dim, generator=gen)
        self.read_delay = read_delay

    def __len__(self):
        return len(self.base)

    def __getitem__(self, index):
        time.sleep(self.read_delay)
        sample = self.base[index]
        return sample + 0.1 * torch.randn_like(sample), sample + 0.1 * torch.randn_like(sample)
