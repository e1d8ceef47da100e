import numpy as np
from torch.utils.data import Sampler


def first_fit(lengths, capacity):
    """Pack lengths into bins of the given capacity, longest first; returns the bins of positions."""
    order = np.argsort(lengths)[::-1]
    bins, room = [], []
    for pos in order:
        for b, free in enumerate(room):
            if lengths[pos] <= free:
                bins[b].append(int(pos))
                room[b] -= lengths[pos]
                break
        else:
            bins.append([int(pos)])
            room.append(capacity - lengths[pos])
    return bins


class MultipackBatchSampler(Sampler):
    """Batches with about `samples_per_batch` samples each, packed by token count."""

    def __init__(self, lengths, samples_per_batch, seed=0):
        self.lengths = np.asarray(lengths)
        self.samples_per_batch = samples_per_batch
        self.rng = np.random.default_rng(seed)

    def find_capacity(self):
        capacity = int(self.lengths.max())
        while True:
            bins = first_fit(self.lengths, capacity)
            if np.mean([len(b) for b in bins]) >= self.samples_per_batch:
                return capacity
            capacity += int(self.lengths.mean())

    def __iter__(self):
        bins = first_fit(self.lengths, self.find_capacity())
        self.rng.shuffle(bins)
        return iter(bins)
