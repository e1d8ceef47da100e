"""Training systems stored as numbered sets (set.000, set.001, ...)."""
import glob
import os

import numpy as np
import torch
from torch.utils.data import Dataset


def write_systems(root, sets, frames, atoms, seed=0):
    rng = np.random.default_rng(seed)
    for s in range(sets):
        coord = rng.standard_normal((frames, atoms, 3)).astype(np.float32)
        energy = (coord**2).sum((1, 2)).astype(np.float32)
        np.savez_compressed(
            os.path.join(root, f"set.{s:03d}.npz"), coord=coord, energy=energy,
            force=(-2 * coord).astype(np.float32),
        )


class SystemDataset(Dataset):
    def __init__(self, root):
        self.files = sorted(glob.glob(os.path.join(root, "set.*.npz")))
        self.counts = [len(self._load_set(f)["energy"]) for f in self.files]
        self.offsets = np.cumsum([0] + self.counts)

    def __len__(self):
        return int(self.offsets[-1])

    def _load_set(self, path):
        with np.load(path) as z:
            return {k: z[k] for k in z.files}

    def __getitem__(self, index):
        s = int(np.searchsorted(self.offsets, index, side="right")) - 1
        frame = index - int(self.offsets[s])
        data = self._load_set(self.files[s])
        return {k: torch.from_numpy(np.array(v[frame])) for k, v in data.items()}
