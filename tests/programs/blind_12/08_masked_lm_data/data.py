import itertools
import time

import numpy as np
from torch.utils.data import Dataset, IterableDataset, get_worker_info


class ProteinMSADataset(Dataset):
    """One-hot alignments, made on the fly."""

    def __init__(self, size, length=256, depth=24, read_time=0.12):
        self.size = size
        self.length = length
        self.depth = depth
        self.read_time = read_time

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index >= self.size:
            raise IndexError(index)
        time.sleep(self.read_time)  # lmdb
        rng = np.random.default_rng(index)
        tokens = rng.integers(0, 21, size=(self.depth, self.length))
        out = np.zeros((self.depth, self.length, 21), dtype=np.float32)
        np.put_along_axis(out, tokens[..., None], 1.0, axis=2)
        return out


class WorkerSlice:
    def __init__(self, dataset, start, step):
        self.dataset = dataset
        self.start = start
        self.step = step

    def __iter__(self):
        for i in range(self.start, len(self.dataset), self.step):
            yield self.dataset[i]


class InfiniteDataset(IterableDataset):
    """Endless stream over a map style dataset, so that training is counted in steps."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        info = get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        return itertools.cycle(WorkerSlice(self.dataset, start, step))
