import os
import tempfile

import torch
from torch.utils.data import Dataset


def write_sets(n_sets, frames, natoms):
    root = tempfile.mkdtemp(prefix="deepset_")
    for s in range(n_sets):
        g = torch.Generator().manual_seed(s)
        coord = torch.randn(frames, natoms, 3, generator=g)
        torch.save({"coord": coord, "energy": coord.pow(2).sum((1, 2))}, os.path.join(root, f"set.{s:03d}.pt"))
    return root


class FrameDataset(Dataset):
    def __init__(self, root, frames):
        self.sets = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.frames = frames

    def _load_set(self, path):
        d = torch.load(path)
        # neighbour statistics are part of the set
        d["radial"] = d["coord"].norm(dim=-1).sort(dim=-1).values
        return d

    def __len__(self):
        return len(self.sets) * self.frames

    def __getitem__(self, i):
        d = self._load_set(self.sets[i // self.frames])
        j = i % self.frames
        return d["coord"][j], d["radial"][j], d["energy"][j]
