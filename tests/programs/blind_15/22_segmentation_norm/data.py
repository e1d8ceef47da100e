import time

import torch
from torch.utils.data import Dataset


class Discs(Dataset):
    """Noisy pictures of two kinds of discs on a background, from a file server."""

    def __init__(self, n, size, latency, seed=0):
        self.n, self.size, self.latency, self.seed = n, size, latency, seed
        y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.y, self.x = y.float(), x.float()

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.latency)
        g = torch.Generator().manual_seed(self.seed + i)
        mask = torch.zeros(self.size, self.size, dtype=torch.long)
        for kind in (1, 2):
            cy, cx = (torch.rand(2, generator=g) * self.size).tolist()
            r = self.size * (0.1 + 0.12 * torch.rand(1, generator=g).item())
            mask[(self.y - cy) ** 2 + (self.x - cx) ** 2 < r * r] = kind
        image = mask.float() * 0.7 + 0.4 * torch.randn(self.size, self.size, generator=g)
        return image[None], mask
