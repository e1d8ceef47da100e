import torch
from torch.utils.data import Dataset


class DocumentGraphs(Dataset):
    """Documents with entity pairs; some documents contain no pair at all."""

    def __init__(self, size, dim=32):
        self.size, self.dim = size, dim

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        n = int(torch.randint(0, 10, (1,), generator=g)) - 6
        n = max(n, 0)
        heads = torch.randn(n, self.dim, generator=g)
        tails = torch.randn(n, self.dim, generator=g)
        labels = ((heads * tails).sum(-1) > 0).float()
        return heads, tails, labels


def collate(docs):
    heads, tails, labels = zip(*docs)
    return {"heads": torch.cat(heads), "tails": torch.cat(tails), "labels": torch.cat(labels)}
