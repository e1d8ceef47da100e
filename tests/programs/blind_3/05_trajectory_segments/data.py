import torch
from torch.utils.data import Dataset


class TrajectoryDataset(Dataset):
    """Each item is a drive: a list of segments with a varying number of points."""

    def __init__(self, n=100000, segments=20):
        self.n, self.segments = n, segments

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        lengths = torch.randint(2, 9, (self.segments,), generator=g).tolist()
        points = torch.randn(sum(lengths), 2, generator=g)
        return [p.clone() for p in points.split(lengths)], i % 5


def collate(batch):
    segments = [s for item, _ in batch for s in item]
    owner = [torch.tensor(k) for k, (item, _) in enumerate(batch) for _ in item]
    labels = torch.tensor([y for _, y in batch])
    return segments, owner, labels
