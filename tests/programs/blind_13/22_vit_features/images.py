import time

import torch
from torch.utils.data import Dataset


class ImageFolder(Dataset):
    """Images of 32 x 32, decoded on access."""

    def __init__(self, count, read_time):
        self.count = count
        self.read_time = read_time

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        time.sleep(self.read_time)
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, 32, 32, generator=g)
