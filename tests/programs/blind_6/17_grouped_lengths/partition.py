"""Deal finished rollouts out to the data-parallel ranks."""
import torch


def rollout_lengths(count, seed):
    g = torch.Generator().manual_seed(seed)
    base = torch.randint(8, 24, (count,), generator=g)
    base[torch.randperm(count, generator=g)[: count // 3]] = 480
    return base.tolist()


class Dispatcher:
    def __init__(self, world_size, per_rank):
        self.world_size, self.per_rank = world_size, per_rank

    def partition(self, step):
        lengths = sorted(rollout_lengths(self.world_size * self.per_rank, step))
        n = self.per_rank
        return [lengths[r * n : (r + 1) * n] for r in range(self.world_size)]
