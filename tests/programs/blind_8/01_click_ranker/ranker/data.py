import torch
from torch.utils.data import IterableDataset

SHARD_ROWS = {
    "2024-05-01": 2304,
    "2024-05-02": 2304,
    "2024-05-03": 2048,
    "2024-05-04": 2304,
    "2024-05-05": 2304,
    "2024-05-06": 2304,
}


class ClickLog(IterableDataset):
    def __init__(self, rank, world_size, num_features=64, seed=11):
        self.days = sorted(SHARD_ROWS)[rank::world_size]
        self.num_features = num_features
        self.seed = seed

    def __iter__(self):
        for day in self.days:
            gen = torch.Generator().manual_seed(self.seed + int(day[-2:]))
            weight = torch.linspace(-1, 1, self.num_features)
            for _ in range(SHARD_ROWS[day]):
                x = torch.randn(self.num_features, generator=gen)
                yield x, (x @ weight > 0).float()
