import collections
import random
import time

import torch
from torch.utils.data import Dataset


class RegionCache:
    """Least recently used regions, bounded in bytes."""

    def __init__(self, max_bytes):
        self.max_bytes, self.bytes, self.d = max_bytes, 0, collections.OrderedDict()

    def get(self, key, make):
        if key in self.d:
            self.d.move_to_end(key)
            return self.d[key]
        v = self.d[key] = make()
        self.bytes += v.numel() * v.element_size()
        while self.bytes > self.max_bytes:
            _, old = self.d.popitem(last=False)
            self.bytes -= old.numel() * old.element_size()
        return v


class SlidePatches(Dataset):
    def __init__(self, n, cache_mb):
        self.n, self.cache = n, RegionCache(cache_mb * 2**20)

    def __len__(self):
        return self.n

    def _read_region(self, key):
        time.sleep(0.12)
        g = torch.Generator().manual_seed(key)
        return torch.randint(0, 255, (3, 512, 1024), dtype=torch.uint8, generator=g)

    def __getitem__(self, i):
        region = self.cache.get(random.randrange(5000), lambda: self._read_region(i))
        y, x = random.randrange(512 - 64), random.randrange(1024 - 64)
        return region[:, y:y + 64, x:x + 64].float() / 255
