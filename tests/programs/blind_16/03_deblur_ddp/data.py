import torch
import torch.nn.functional as F
from torch.utils.data import Dataset


class BlurPairs(Dataset):
    """Pairs of (blurred, sharp) patches, generated from the index."""

    def __init__(self, size, patch, seed):
        self.size, self.patch, self.seed = size, patch, seed

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(self.seed * 100003 + index)
        coarse = torch.rand(1, 3, self.patch // 6, self.patch // 6, generator=g)
        sharp = F.interpolate(coarse, size=(self.patch, self.patch), mode="nearest")
        length = int(torch.randint(2, 5, (1,), generator=g))
        blurred = F.avg_pool2d(sharp, (1, 2 * length + 1), stride=1, padding=(0, length))
        return blurred[0], sharp[0]
