import time

import numpy as np
import torch
from torch.utils.data import Dataset


class AnnotationIndex:
    def __init__(self, n):
        self.entries = {}
        for i in range(n):
            if i % 200 == 0:
                time.sleep(0.02)
            self.entries[f"img_{i:07d}"] = {"label": i % 10, "box": (i % 7, i % 5, 32, 32)}


class ImageListDataset(Dataset):
    def __init__(self, n=600, ann=40000):
        self.n, self.ann = n, ann
        self.index = None

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.index is None:
            self.index = AnnotationIndex(self.ann)
        meta = self.index.entries[f"img_{i:07d}"]
        img = np.random.default_rng(i).normal(size=(3, 16, 16)).astype(np.float32)
        return torch.from_numpy(img), meta["label"]
