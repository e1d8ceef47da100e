import logging
import time
from collections import OrderedDict

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

log = logging.getLogger("slides")


class LRU:
    def __init__(self, limit):
        self.limit = limit
        self.items = OrderedDict()
        self.hits = self.misses = 0

    def get(self, key, load):
        if key in self.items:
            self.hits += 1
            self.items.move_to_end(key)
            return self.items[key]
        self.misses += 1
        value = self.items[key] = load(key)
        if len(self.items) > self.limit:
            self.items.popitem(last=False)
        return value


class SlideTiles(Dataset):
    """Random tiles; decoded slides stay in a bounded cache of the worker."""

    def __init__(self, slides, tiles_per_slide, edge=1200, keep=90):
        self.slides = slides
        self.tiles_per_slide = tiles_per_slide
        self.edge = edge
        self.cache = LRU(keep)

    def __len__(self):
        return self.slides * self.tiles_per_slide

    def decode(self, slide):
        rng = np.random.default_rng(slide)
        time.sleep(0.25)
        row = rng.integers(0, 255, (1, self.edge, 3), dtype=np.uint8)
        return np.repeat(row, self.edge, axis=0)

    def __getitem__(self, index):
        slide = self.cache.get(index % self.slides, self.decode)
        if (self.cache.hits + self.cache.misses) % 100 == 0:
            info = get_worker_info()
            log.info("worker %d: %d slides cached, hit rate %.2f", info.id if info else 0, len(self.cache.items),
                     self.cache.hits / (self.cache.hits + self.cache.misses))
        top, left = np.random.randint(0, self.edge - 64, 2)
        tile = np.ascontiguousarray(slide[top:top + 64, left:left + 64].transpose(2, 0, 1))
        return torch.from_numpy(tile).float() / 255
