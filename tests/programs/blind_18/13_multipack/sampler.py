"""Multipack batch sampler: fill every rank with about the same number of tokens per step."""
import numpy as np
from torch.utils.data import Sampler


def assign_lpt(indices, lengths, num_slots):
    """Longest-processing-time first: always give the next sample to the emptiest slot."""
    slots = [[] for _ in range(num_slots)]
    load = [0] * num_slots
    for i in sorted(indices, key=lambda j: -lengths[j]):
        target_slot = min(range(num_slots), key=lambda s: (load[s], s))
        slots[target_slot].append(i)
        load[target_slot] += int(lengths[i])
    return slots


class MultipackDistributedBatchSampler(Sampler):
    def __init__(self, lengths, batch_max_tokens, num_replicas, rank, seed=0):
        self.lengths = np.asarray(lengths)
        self.batch_max_tokens = batch_max_tokens
        self.num_replicas = num_replicas
        self.rank = rank
        self.seed = seed
        self.epoch = 0
        self.batches = None

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.batches = None

    def _global_batches(self):
        rng = np.random.default_rng(self.seed + self.epoch)
        order = rng.permutation(len(self.lengths))
        budget = self.batch_max_tokens * self.num_replicas
        batch, tokens = [], 0
        for i in order:
            if tokens + self.lengths[i] > budget and len(batch) >= self.num_replicas:
                yield batch
                batch, tokens = [], 0
            batch.append(int(i))
            tokens += int(self.lengths[i])

    def generate_batches(self):
        out = []
        for batch in self._global_batches():
            slots = assign_lpt(batch, self.lengths, self.num_replicas)
            out.append(slots[self.rank])
        return out

    def __iter__(self):
        if self.batches is None:
            self.batches = self.generate_batches()
        return iter(self.batches)

    def __len__(self):
        if self.batches is None:
            self.batches = self.generate_batches()
        return len(self.batches)

    def efficiency(self):
        tokens = sum(int(self.lengths[i]) for b in self for i in b)
        return tokens / (len(self) * self.batch_max_tokens)
