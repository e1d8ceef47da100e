import numpy as np
from torch.utils.data import Dataset
import torch


class CmvnStats:
    """Global mean and variance, shared by all workers and updated as shards arrive."""

    def __init__(self, manager, dim):
        self.table = manager.dict()
        self.table["mean"] = np.zeros(dim, dtype=np.float32)
        self.table["std"] = np.ones(dim, dtype=np.float32)
        self.table["frames"] = 0

    def update(self, feats):
        n = self.table["frames"]
        m = feats.shape[0]
        mean = self.table["mean"]
        self.table["mean"] = (mean * n + feats.mean(0) * m) / (n + m)
        self.table["std"] = np.maximum(feats.std(0), 1e-3)
        self.table["frames"] = n + m


class UtteranceDataset(Dataset):
    def __init__(self, n_utts, frames, dim, stats, classes=32):
        self.n_utts = n_utts
        self.frames = frames
        self.dim = dim
        self.stats = stats.table
        self.classes = classes

    def __len__(self):
        return self.n_utts

    def _load(self, idx):
        rng = np.random.default_rng(idx)
        return rng.normal(1.0, 2.0, (self.frames, self.dim)).astype(np.float32)

    def _normalise(self, feats):
        out = np.empty_like(feats)
        for t, frame in enumerate(feats):
            out[t] = (frame - self.stats["mean"]) / self.stats["std"]
        return out

    def __getitem__(self, idx):
        feats = self._normalise(self._load(idx))
        return torch.from_numpy(feats), idx % self.classes
