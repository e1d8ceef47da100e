import os

import numpy as np
import torch
from torch.utils.data import Dataset


def build_archive(folder, sweeps, bins, rng):
    """Pack all sweeps of the campaign into one archive, as the converter of the radar does."""
    path = os.path.join(folder, "campaign.npz")
    if not os.path.exists(path):
        row = rng.integers(0, 255, (sweeps, bins), dtype=np.uint8)
        label = (row[:, : bins // 2].mean(1) > row[:, bins // 2 :].mean(1)).astype(np.int64)
        np.savez(path, row=row, label=label)
    return path


class SweepDataset(Dataset):
    """One radar sweep per item, read lazily from the archive."""

    def __init__(self, path, indices):
        self.path = path
        self.indices = indices
        self.archive = None

    def _open(self):
        if self.archive is None:
            self.archive = np.load(self.path)
        return self.archive

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, i):
        archive = self._open()
        k = self.indices[i]
        row = archive["row"][k]
        label = archive["label"][k]
        return torch.from_numpy(row.astype(np.float32) / 255.0), int(label)


class PreviewDataset(Dataset):
    """The first sweeps, held in memory, to warm the model up."""

    def __init__(self, path, count):
        with np.load(path) as archive:
            self.rows, self.labels = archive["row"][:count], archive["label"][:count]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.from_numpy(self.rows[i].astype(np.float32) / 255.0), int(self.labels[i])
