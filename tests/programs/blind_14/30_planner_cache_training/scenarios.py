"""Driving scenarios: log files on disk and the cache of features made of them."""
import json
import os

import numpy as np
import torch
from torch.utils.data import Dataset


def write_logs(root, logs, seed):
    rng = np.random.default_rng(seed)
    os.makedirs(root, exist_ok=True)
    for i in range(logs):
        track = np.cumsum(rng.normal(size=(60, 2)), 0).round(3).tolist()
        with open(os.path.join(root, f"log_{i:05d}.json"), "w") as f:
            json.dump({"token": i, "ego": track, "agents": rng.normal(size=(6, 60, 2)).round(3).tolist()}, f)


class FeatureBuilder:
    def __init__(self, refine):
        self.refine = refine

    def __call__(self, path):
        with open(path) as f:
            data = json.load(f)
        ego = np.asarray(data["ego"])
        agents = np.asarray(data["agents"]).reshape(-1, 2)
        for _ in range(self.refine):
            d = ((ego[:, None] - agents[None]) ** 2).sum(-1)
            ego = 0.999 * ego + 0.001 * agents[d.argmin(1)]
        heading = np.diff(ego, axis=0)
        return np.concatenate([heading[:50].ravel(), d.min(1)[:28]]).astype(np.float32), ego[-1].astype(np.float32)


class CachedScenarios(Dataset):
    def __init__(self, cache):
        data = np.load(cache)
        self.x, self.y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
        self.y = (self.y - self.y.mean(0)) / self.y.std(0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]
