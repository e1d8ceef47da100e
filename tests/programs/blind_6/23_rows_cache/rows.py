"""Row groups decoded on demand, the most recent ones kept in memory."""
from collections import OrderedDict

import numpy as np


class RowGroupCache:
    def __init__(self, max_bytes):
        self.max_bytes, self.nbytes = max_bytes, 0
        self.groups = OrderedDict()
        self.hits = self.misses = 0

    def get(self, key, load):
        if key in self.groups:
            self.hits += 1
            self.groups.move_to_end(key)
            return self.groups[key]
        self.misses += 1
        value = load(key)
        self.groups[key] = value
        self.nbytes += value.nbytes
        while self.nbytes > self.max_bytes:
            _, old = self.groups.popitem(last=False)
            self.nbytes -= old.nbytes
        return value


class RowReader:
    def __init__(self, groups, cache_mb, rows=512, dim=512):
        self.groups, self.rows, self.dim = groups, rows, dim
        self.cache = RowGroupCache(cache_mb << 20)

    def _decode(self, key):
        rng = np.random.default_rng(key)
        return rng.standard_normal((self.rows, self.dim), dtype=np.float32)

    def batch(self, rng, n):
        key = int(rng.zipf(1.15)) % self.groups
        block = self.cache.get(key, self._decode)
        return block[rng.integers(0, self.rows, n)]
