"""Image data set in compressed shards, with random access."""
import bisect
import functools
import itertools
import json
import os

import numpy as np
import torch
from torch.utils.data import Dataset


def write_shards(folder, n_shards, per_shard, size, seed):
    """Converts the (synthetic) raw data to shards."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 3, size)
    index = []
    for i in range(n_shards):
        labels = rng.integers(0, 10, per_shard)
        waves = np.sin(grid[None, :, None] * (labels[:, None, None] + 1)) * np.cos(grid[None, None, :])
        images = (waves[:, None] * 80 + 128 + rng.integers(0, 4, (per_shard, 3, 1, 1))).astype(np.uint8)
        images = images + rng.integers(0, 2, images.shape, dtype=np.uint8)
        name = f"train-{i:05d}.npz"
        np.savez_compressed(os.path.join(folder, name), images=images, labels=labels)
        index.append({"name": name, "samples": per_shard})
    with open(os.path.join(folder, "index.json"), "w") as f:
        json.dump(index, f)


class ShardedImages(Dataset):
    def __init__(self, folder, open_shards=3):
        self.folder = folder
        with open(os.path.join(folder, "index.json")) as f:
            self.index = json.load(f)
        self.ends = list(itertools.accumulate(s["samples"] for s in self.index))
        self.shard = functools.lru_cache(maxsize=open_shards)(self._open)

    def _open(self, number):
        with np.load(os.path.join(self.folder, self.index[number]["name"])) as data:
            return data["images"], data["labels"]

    def __len__(self):
        return self.ends[-1]

    def __getitem__(self, i):
        number = bisect.bisect_right(self.ends, i)
        images, labels = self.shard(number)
        offset = i - (self.ends[number] - self.index[number]["samples"])
        return torch.from_numpy(images[offset].astype(np.float32) / 255 - 0.5), int(labels[offset])
