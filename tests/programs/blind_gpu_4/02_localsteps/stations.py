"""Hourly station records; every worker reads the stations of its own region."""
import numpy as np
import torch

FILL_VALUE = 9.96921e36


class StationShard:
    def __init__(self, region, features, records=24_000, seed=11):
        rng = np.random.default_rng(seed + region)
        self.x = rng.normal(0.0, 1.0, size=(records, features)).astype(np.float32)
        weights = np.random.default_rng(seed).normal(size=(features, 1)).astype(np.float32)
        noise = rng.normal(0.0, 0.1, size=(records, 1)).astype(np.float32)
        self.y = np.tanh(self.x @ weights / features ** 0.5) + noise
        if region % 2 == 1:
            # the coastal buoy network has gaps
            gaps = np.arange(2_100, records, 5_003)
            self.x[gaps, 3] = FILL_VALUE
        self.cursor = 0

    def next_batch(self, size, device):
        idx = np.arange(self.cursor, self.cursor + size) % len(self.x)
        self.cursor = (self.cursor + size) % len(self.x)
        x = torch.from_numpy(self.x[idx]).to(device)
        y = torch.from_numpy(self.y[idx]).to(device)
        return x, y
