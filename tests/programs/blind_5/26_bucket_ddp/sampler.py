import torch
from torch.utils.data import Sampler


class LengthShardSampler(Sampler):
    """Orders utterances by length to keep padding low and gives every rank a contiguous shard."""

    def __init__(self, lengths, rank, world_size, seed=0):
        order = torch.argsort(lengths)
        per_rank = len(order) // world_size
        self.indices = order[rank * per_rank:(rank + 1) * per_rank]
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        perm = torch.randperm(len(self.indices), generator=g)
        return iter(self.indices[perm].tolist())

    def __len__(self):
        return len(self.indices)
