import torch
from torch.utils.data import Dataset


class StageDataset(Dataset):
    """Samples of one curriculum stage; a share of them comes with a series."""

    def __init__(self, size, series_share, seed):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 500, (size, 48), generator=g)
        self.series = torch.randn(size, 256, generator=g)
        self.has_series = torch.rand(size, generator=g) < series_share
        self.labels = torch.randint(0, 8, (size,), generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"tokens": self.tokens[i], "series": self.series[i], "has_series": self.has_series[i],
                "label": self.labels[i]}
