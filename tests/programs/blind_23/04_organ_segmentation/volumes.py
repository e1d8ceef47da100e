import torch
from torch.utils.data import Dataset

ORGANS = ["liver", "spleen", "kidney_l", "kidney_r", "pancreas", "aorta"]


class AbdomenCrops(Dataset):
    """Random crops of synthetic abdomens: each crop shows some of the organs."""

    def __init__(self, cases, crop, seed):
        self.cases = cases
        self.crop = crop
        self.seed = seed
        axis = torch.arange(crop, dtype=torch.float32)
        self.grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"))

    def __len__(self):
        return self.cases

    def __getitem__(self, n):
        g = torch.Generator().manual_seed(self.seed * 7919 + n)
        image = 0.1 * torch.randn(self.crop, self.crop, self.crop, generator=g)
        labels = torch.zeros(len(ORGANS), self.crop, self.crop, self.crop, dtype=torch.bool)
        for organ in range(len(ORGANS)):
            if torch.rand(1, generator=g).item() > 0.4:
                continue
            centre = self.crop * (0.2 + 0.6 * torch.rand(3, 1, 1, 1, generator=g))
            radius = self.crop * (0.12 + 0.12 * torch.rand(1, generator=g).item())
            mask = (self.grid - centre).pow(2).sum(0) < radius ** 2
            labels[organ] = mask
            image[mask] += 0.3 + 0.15 * organ
        return image[None], labels
