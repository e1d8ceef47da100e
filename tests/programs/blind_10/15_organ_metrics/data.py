import torch
from torch.utils.data import Dataset

ORGANS = ("background", "liver", "kidney", "spleen", "pancreas")


class OrganPatches(Dataset):
    """Patches from several sites. Not every site scans every organ."""

    SITES = {0: (0, 1, 2, 3, 4), 1: (0, 1, 2, 3, 4), 2: (0, 1, 2)}

    def __init__(self, site, count, dim=32):
        gen = torch.Generator().manual_seed(site)
        labels = torch.tensor(self.SITES[site % len(self.SITES)])
        self.y = labels[torch.randint(0, len(labels), (count,), generator=gen)]
        self.x = torch.randn(count, dim, generator=gen) + self.y[:, None] * 0.5

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]
