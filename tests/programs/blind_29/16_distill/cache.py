"""Teacher outputs, kept for the rest of the run."""
import numpy as np
import torch


class LogitCache:
    def __init__(self, samples, classes):
        self.chunks = []
        self.where = np.full((samples, 2), -1, dtype=np.int64)
        self.classes = classes
        self.ready = []

    def store(self, ids, logits):
        self.where[ids, 0] = len(self.chunks)
        self.where[ids, 1] = np.arange(len(ids))
        self.chunks.append(logits)
        self.ready.extend(ids.tolist())

    def __len__(self):
        return len(self.ready)

    @property
    def megabytes(self):
        return sum(c.nbytes for c in self.chunks) / 2 ** 20

    def batch(self, size, generator):
        pick = torch.randint(len(self.ready), (size,), generator=generator).tolist()
        ids = [self.ready[p] for p in pick]
        rows = np.stack([self.chunks[c][r] for c, r in self.where[ids]])
        return torch.tensor(ids), torch.from_numpy(rows).float()
