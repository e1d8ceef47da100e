"""ECE imaging like shots, sorted as in the shot list: quiet ones first, disruptive ones last."""
import torch
from torch.utils.data import Dataset


class ShotDataset(Dataset):
    def __init__(self, shots, length=256, channels=8, seed=0):
        g = torch.Generator().manual_seed(seed)
        severity = torch.linspace(0.0, 1.0, shots)
        self.x = torch.randn(shots, channels, length, generator=g)
        self.y = torch.zeros(shots, length)
        for i, s in enumerate(severity.tolist()):
            onset = int(length * (0.3 + 0.5 * torch.rand(1, generator=g).item()))
            ramp = torch.linspace(0, 1, length - onset)
            self.x[i, :4, onset:] += 1.5 * s * ramp
            flip = torch.rand(length, generator=g) < 0.35 * s
            label = torch.zeros(length)
            label[onset:] = float(s > 0.2)
            self.y[i] = torch.where(flip, 1 - label, label)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def shard(dataset, rank, world):
    """Contiguous block of the shot list."""
    per = len(dataset) // world
    return torch.utils.data.Subset(dataset, range(rank * per, (rank + 1) * per))
