import torch
from torch.utils.data import Dataset


class SensorDataset(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(count, 32, generator=gen)
        self.y = (self.x[:, :4] + 0.3 * torch.randn(count, 4, generator=gen)).argmax(dim=1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def make_requests(n):
    return torch.randn(n, 32)
