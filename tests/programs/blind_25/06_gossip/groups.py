"""Who averages with whom in which round."""
import random

import torch.distributed as dist


class RandomPartition:
    """Draws the participants of every round; all ranks draw the same."""

    def __init__(self, world_size, seed, smallest=2):
        self.world_size, self.smallest = world_size, smallest
        self.rng = random.Random(seed)

    def draw(self):
        size = self.rng.randint(self.smallest, self.world_size)
        return sorted(self.rng.sample(range(self.world_size), size))


class RoundGroup:
    """The process group of one averaging round."""

    def __init__(self, members):
        self.members = members
        self.group = dist.new_group(members)

    def __contains__(self, rank):
        return rank in self.members

    def average(self, tensors):
        for t in tensors:
            dist.all_reduce(t, group=self.group)
            t /= len(self.members)
