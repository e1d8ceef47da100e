import torch
from torch.utils.data import Dataset, Sampler


class SpleenVolumes(Dataset):
    """Synthetic CT crops: a bright ellipsoid on a noisy background."""

    def __init__(self, count, size=24, seed=0):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 10000 + i)
        ax = torch.linspace(-1, 1, self.size)
        c, r = torch.rand(3, generator=g) * 0.6 - 0.3, torch.rand(3, generator=g) * 0.4 + 0.25
        z, y, x = torch.meshgrid(ax, ax, ax, indexing="ij")
        mask = (((z - c[0]) / r[0]) ** 2 + ((y - c[1]) / r[1]) ** 2 + ((x - c[2]) / r[2]) ** 2 < 1).float()
        image = mask * 0.8 + torch.randn(mask.shape, generator=g) * 0.4
        return image[None], mask[None]


class DistributedSampler(Sampler):
    """Like torch's, with even_divisible=False for validation: no image is counted twice."""

    def __init__(self, dataset, rank, world_size, shuffle=False, even_divisible=True):
        self.n, self.rank, self.world_size = len(dataset), rank, world_size
        self.shuffle, self.even_divisible, self.epoch = shuffle, even_divisible, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator().manual_seed(self.epoch)
        idx = torch.randperm(self.n, generator=g).tolist() if self.shuffle else list(range(self.n))
        if self.even_divisible:
            idx += idx[: -len(idx) % self.world_size]
        return iter(idx[self.rank :: self.world_size])

    def __len__(self):
        return len(range(self.rank, self.n + (-self.n % self.world_size if self.even_divisible else 0), self.world_size))
