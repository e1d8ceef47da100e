import math

import torch.distributed as dist
from torch.utils.data import Sampler


class DistributedEvalSampler(Sampler):
    """Like DistributedSampler, without adding extra samples to make the split even,
    so that every test image is evaluated exactly once."""

    def __init__(self, dataset, num_replicas=None, rank=None):
        self.dataset = dataset
        self.num_replicas = num_replicas if num_replicas is not None else dist.get_world_size()
        self.rank = rank if rank is not None else dist.get_rank()
        self.total_size = len(dataset)
        indices = list(range(self.total_size))[self.rank:self.total_size:self.num_replicas]
        self.num_samples = len(indices)

    def __iter__(self):
        return iter(list(range(self.total_size))[self.rank:self.total_size:self.num_replicas])

    def __len__(self):
        return self.num_samples
