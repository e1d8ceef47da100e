"""Character classes; the pictures are rendered and then kept in memory."""
import numpy as np
import torch
from torch.utils.data import Dataset


def render(class_id, sample_id, size):
    rng = np.random.default_rng(class_id)
    strokes = rng.uniform(0.15, 0.85, (5, 4))
    jitter = np.random.default_rng((class_id, sample_id)).normal(0, 0.03, (5, 4))
    half = size // 2
    y, x = np.mgrid[0:half, 0:half] / half
    image = np.zeros((half, half))
    for x0, y0, x1, y1 in strokes + jitter:
        for t in np.linspace(0, 1, 12):
            image += np.exp(-((x - x0 - t * (x1 - x0)) ** 2 + (y - y0 - t * (y1 - y0)) ** 2) / 0.0008)
    return np.kron(np.clip(image, 0, 1), np.ones((2, 2))).astype(np.float32)


class ClassDataset(Dataset):
    """One item is one class with all its pictures, in four rotations."""

    def __init__(self, n_classes, per_class, size):
        self.n_classes = n_classes
        self.per_class = per_class
        self.size = size
        self.cache = {}

    def __len__(self):
        return self.n_classes

    def load_class(self, class_id):
        if class_id not in self.cache:
            images = np.stack([render(class_id, s, self.size) for s in range(self.per_class)])
            self.cache[class_id] = torch.from_numpy(np.stack([np.rot90(images, k, (1, 2)) for k in range(4)]))
        return self.cache[class_id]

    def __getitem__(self, key):
        class_id, n_support, n_query, seed = key
        g = torch.Generator().manual_seed(seed)
        images = self.load_class(class_id)
        rotation = torch.randint(4, (1,), generator=g).item()
        pick = torch.randperm(self.per_class, generator=g)[:n_support + n_query]
        small = torch.nn.functional.avg_pool2d(images[rotation][pick][:, None], self.size // 28)
        return {"support": small[:n_support], "query": small[n_support:]}


class EpisodicBatchSampler:
    def __init__(self, n_classes, n_way, n_support, n_query, seed=0):
        self.n_classes, self.n_way = n_classes, n_way
        self.n_support, self.n_query = n_support, n_query
        self.g = torch.Generator().manual_seed(seed)
        self.episode = 0

    def __iter__(self):
        while True:
            self.episode += 1
            for c in torch.randperm(self.n_classes, generator=self.g)[:self.n_way].tolist():
                yield c, self.n_support, self.n_query, self.episode * 1000 + c
