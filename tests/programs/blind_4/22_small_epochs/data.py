import json
import random

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info


def write_templates(path, n=3000):
    """Stroke templates used by the augmentation, one JSON object a line."""
    rng = random.Random(0)
    with open(path, "w") as fh:
        for k in range(n):
            points = [[round(rng.random(), 4), round(rng.random(), 4)] for _ in range(40)]
            fh.write(json.dumps({"id": k, "points": points}) + "\n")


class FewShotDigits(Dataset):
    """A few hundred 28x28 drawings, overlaid with random strokes on the fly."""

    def __init__(self, template_file, n=320, seed=0):
        rng = np.random.default_rng(seed)
        self.images = rng.random((n, 28, 28), dtype=np.float32)
        self.labels = rng.integers(0, 10, n)
        self.template_file, self.templates = template_file, None

    def open(self):
        self.templates = []
        with open(self.template_file) as fh:
            for line in fh:
                canvas = np.zeros((28, 28), dtype=np.float32)
                points = np.array(json.loads(line)["points"]) * 27
                for a, b in zip(points, points[1:]):
                    for t in np.linspace(0, 1, 4):
                        row, col = (a + (b - a) * t).astype(int)
                        canvas[row, col] = 1.0
                self.templates.append(canvas)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        stroke = self.templates[np.random.randint(len(self.templates))]
        image = np.clip(self.images[i] + 0.3 * stroke, 0, 1)
        return torch.from_numpy(image[None]), int(self.labels[i])


def init_worker(_):
    get_worker_info().dataset.open()
