import time

import numpy as np
import torch
from torch.utils.data import Dataset


class View:
    """One crop of an image together with where it was taken from."""

    def __init__(self, image, pixels, box, kind):
        self.image = image
        self.pixels = pixels
        self.box = box
        self.kind = kind

    def overlap(self):
        """Fraction of this view that the global views of its image cover."""
        best = 0.0
        for other in self.image.views:
            if other is self or other.kind != "global":
                continue
            y0, x0 = max(self.box[0], other.box[0]), max(self.box[1], other.box[1])
            y1, x1 = min(self.box[2], other.box[2]), min(self.box[3], other.box[3])
            area = max(0, y1 - y0) * max(0, x1 - x0)
            best = max(best, area / ((self.box[2] - self.box[0]) * (self.box[3] - self.box[1])))
        return best


class AugmentedImage:
    def __init__(self, index, pixels):
        self.index = index
        self.pixels = pixels
        self.views = []

    def add_view(self, rng, size, scale, kind):
        h, w, _ = self.pixels.shape
        side = int(rng.uniform(*scale) * min(h, w))
        y, x = rng.integers(0, h - side + 1), rng.integers(0, w - side + 1)
        rows = np.linspace(y, y + side - 1, size).astype(int)
        cols = np.linspace(x, x + side - 1, size).astype(int)
        crop = self.pixels[rows][:, cols]
        if rng.random() < 0.5:
            crop = crop[:, ::-1]
        jitter = rng.uniform(0.8, 1.2, 3).astype(np.float32)
        crop = np.clip(crop.astype(np.float32) * jitter / 255.0, 0, 1)
        self.views.append(View(self, crop, (y, x, y + side, x + side), kind))


class MultiCropDataset(Dataset):
    def __init__(self, length, resolution=224, n_local=4, read_latency=0.05):
        self.length = length
        self.resolution = resolution
        self.n_local = n_local
        self.read_latency = read_latency

    def __len__(self):
        return self.length

    def read(self, index):
        time.sleep(self.read_latency)
        rng = np.random.default_rng(index)
        low = rng.integers(0, 255, (self.resolution // 8, self.resolution // 8, 3), dtype=np.uint8)
        return low.repeat(8, 0).repeat(8, 1)

    def __getitem__(self, index):
        rng = np.random.default_rng(index + 1_000_003)
        image = AugmentedImage(index, self.read(index))
        for _ in range(2):
            image.add_view(rng, 64, (0.4, 1.0), "global")
        for _ in range(self.n_local):
            image.add_view(rng, 32, (0.1, 0.4), "local")
        crops_g = np.stack([v.pixels for v in image.views if v.kind == "global"])
        crops_l = np.stack([v.pixels for v in image.views if v.kind == "local"])
        overlap = np.array([v.overlap() for v in image.views], np.float32)
        return torch.from_numpy(crops_g), torch.from_numpy(crops_l), torch.from_numpy(overlap)
