from collections import OrderedDict

import numpy as np
import torch
from torch.utils.data import Dataset


class SlideCache:
    def __init__(self, limit):
        self.limit = limit
        self.used = 0
        self.slides = OrderedDict()

    def get(self, key, build):
        if key in self.slides:
            self.slides.move_to_end(key)
            return self.slides[key]
        slide = build(key)
        self.slides[key] = slide
        self.used += slide.nbytes
        while self.used > self.limit:
            _, old = self.slides.popitem(last=False)
            self.used -= old.nbytes
        return slide


class TileDataset(Dataset):
    def __init__(self, slides, cache_bytes, side=1024, tiles_per_slide=3):
        self.slides = slides
        self.side = side
        self.tiles_per_slide = tiles_per_slide
        self.cache = SlideCache(cache_bytes)

    def __len__(self):
        return self.slides * self.tiles_per_slide

    def read_slide(self, slide):
        rng = np.random.default_rng(slide)
        return rng.integers(0, 255, (self.side, self.side, 3), dtype=np.uint8)

    def __getitem__(self, i):
        slide, tile = divmod(i, self.tiles_per_slide)
        image = self.cache.get(slide, self.read_slide)
        top = tile * 256
        crop = image[top : top + 128, top : top + 128].astype(np.float32) / 255
        return torch.from_numpy(crop).permute(2, 0, 1).contiguous()
