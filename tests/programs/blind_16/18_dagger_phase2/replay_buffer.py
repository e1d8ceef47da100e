import numpy as np
import torch
from torch.utils.data import Dataset


class ReplayBuffer(Dataset):
    """Frames of the student's own drives, the least informative ones are replaced when it is full."""

    def __init__(self, buffer_limit=200000, seed=0):
        self.buffer_limit = buffer_limit
        self._data, self._weights = {}, []
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self._data)

    def __getitem__(self, idx):
        birdview, rgb, command, waypoints = self._data[idx]
        rgb = torch.from_numpy(rgb).permute(2, 0, 1).float() / 255
        return rgb, command, torch.from_numpy(waypoints)

    def add_data(self, birdview, rgb, command, waypoints, weight):
        if len(self._data) < self.buffer_limit:
            idx = len(self._data)
            self._weights.append(weight)
        else:
            idx = int(np.argmin(self._weights))
            if weight < self._weights[idx]:
                return
            self._weights[idx] = weight
        self._data[idx] = (birdview, rgb, command, waypoints)

    def sample(self, size):
        w = np.asarray(self._weights)
        chosen = self.rng.choice(len(w), size, p=w / w.sum())
        return [torch.stack([torch.as_tensor(x) for x in col]) for col in zip(*(self[int(i)] for i in chosen))]

    def nbytes(self):
        return sum(b.nbytes + r.nbytes for b, r, _, _ in self._data.values())
