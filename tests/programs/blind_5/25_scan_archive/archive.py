import os

import numpy as np
import torch
from torch.utils.data import Dataset


def build_archive(root, n_scans, slices, size):
    os.makedirs(root, exist_ok=True)
    rng = np.random.default_rng(7)
    paths = []
    for s in range(n_scans):
        vol = (rng.random((slices, size, size)) * 40).astype(np.int16)
        path = os.path.join(root, f"scan_{s:03d}.npz")
        np.savez_compressed(path, volume=vol, label=rng.integers(0, 2, slices))
        paths.append(path)
    return paths


class SliceDataset(Dataset):
    """One item is one slice of one scan."""

    def __init__(self, paths, slices):
        self.paths = paths
        self.slices = slices

    def __len__(self):
        return len(self.paths) * self.slices

    def __getitem__(self, i):
        scan, z = divmod(i, self.slices)
        with np.load(self.paths[scan]) as f:
            img = f["volume"][z]
            label = f["label"][z]
        x = torch.from_numpy(img.astype(np.float32)) / 40.0
        return x.unsqueeze(0), int(label)
