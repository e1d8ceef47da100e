from collections import OrderedDict

import numpy as np
import torch
from torch.utils.data import Dataset


class ChunkCache:
    def __init__(self, max_bytes):
        self.max_bytes, self.used = max_bytes, 0
        self.items = OrderedDict()

    def get(self, key, load):
        if key in self.items:
            self.items.move_to_end(key)
            return self.items[key]
        chunk = load(key)
        self.items[key] = chunk
        self.used += chunk.nbytes
        while self.used > self.max_bytes:
            _, old = self.items.popitem(last=False)
            self.used -= old.nbytes
        return chunk


class ChunkedViews(Dataset):
    def __init__(self, n, cache_mb):
        self.n = n
        self.cache = ChunkCache(cache_mb << 20)

    def __len__(self):
        return self.n

    def load(self, chunk):
        return np.random.default_rng(chunk).random((512, 512), dtype=np.float32)

    def __getitem__(self, i):
        chunk = self.cache.get(i // 4, self.load)
        y = (i * 37) % 480
        return torch.from_numpy(chunk[y:y + 16, :64].copy()), i % 10
