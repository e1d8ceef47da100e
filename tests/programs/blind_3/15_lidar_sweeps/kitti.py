import os

import numpy as np
import torch
from torch.utils.data import Dataset


def write_sweeps(folder, n):
    rng = np.random.default_rng(0)
    for i in range(n):
        np.save(os.path.join(folder, f"{i:06d}.npy"), rng.normal(size=(64, 4)).astype(np.float32))


class SweepReader:
    """Opens sweeps lazily and keeps the reader state for augmentations that look back."""

    def __init__(self, folder):
        self.folder = folder
        self.handles = []

    def read(self, i):
        f = open(os.path.join(self.folder, f"{i:06d}.npy"), "rb")
        self.handles.append(f)
        return np.load(f)


class KittiSweeps(Dataset):
    def __init__(self, folder, n, repeat):
        self.reader = SweepReader(folder)
        self.n, self.repeat = n, repeat

    def __len__(self):
        return self.n * self.repeat

    def __getitem__(self, i):
        pts = self.reader.read(i % self.n)
        prev = self.reader.read((i - 1) % self.n)
        return torch.from_numpy(np.concatenate([pts, prev]))
