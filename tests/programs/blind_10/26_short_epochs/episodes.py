import numpy as np
import torch
from torch.utils.data import Dataset


class FewShotEpisodes(Dataset):
    """Small episodes drawn from a table of embeddings that is kept in memory."""

    def __init__(self, classes=200, per_class=120, dim=256, episodes=16, shots=5, seed=0):
        rng = np.random.default_rng(seed)
        centre = rng.standard_normal((classes, 1, dim), dtype=np.float32)
        self.table = centre + 0.3 * rng.standard_normal((classes, per_class, dim), dtype=np.float32)
        self.episodes = episodes
        self.shots = shots
        self.rng = np.random.default_rng(seed + 1)

    def __len__(self):
        return self.episodes

    def __getitem__(self, index):
        classes = self.rng.choice(len(self.table), 5, replace=False)
        picks = self.rng.integers(0, self.table.shape[1], (5, self.shots + 1))
        data = self.table[classes[:, None], picks]
        return torch.from_numpy(data[:, :-1]), torch.from_numpy(data[:, -1])
