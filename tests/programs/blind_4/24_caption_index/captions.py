import random

import torch
from torch.utils.data import Dataset


def build_index(n):
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 9))) for _ in range(2000)]
    return {
        "captions": [" ".join(rng.choices(words, k=12)) for _ in range(n)],
        "sizes": [(rng.randint(200, 900), rng.randint(200, 900)) for _ in range(n)],
    }


class CaptionedImages(Dataset):
    """Image-caption pairs; the index is held once by a manager so that the workers do not copy it."""

    def __init__(self, manager, n):
        self.index = manager.dict(build_index(n))
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        caption = self.index["captions"][i]
        width, height = self.index["sizes"][i]
        tokens = torch.tensor([hash(w) % 5000 for w in caption.split()])
        image = torch.full((3, 16, 16), (width * height % 255) / 255)
        return image, tokens
