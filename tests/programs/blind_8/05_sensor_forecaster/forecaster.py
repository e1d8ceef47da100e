import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset


class SensorWindows(Dataset):
    def __init__(self, samples, window, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(samples + window + 1)
        series = np.sin(t / 11) + 0.3 * np.sin(t / 3) + rng.normal(0, 0.1, len(t))
        self.series = series.astype(np.float32)
        self.window = window
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        w = self.series[i : i + self.window]
        x = (w - w.mean()) / (w.std() + 1e-6)
        return torch.from_numpy(x), torch.tensor(self.series[i + self.window])


class Forecaster(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(window, 128), nn.GELU(), nn.Linear(128, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)
