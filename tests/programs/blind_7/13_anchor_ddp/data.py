"""Synthetic detection scenes; each rank reads its own part."""
import torch
from torch.utils.data import Dataset

MAX_BOXES = 6


class SceneDataset(Dataset):
    def __init__(self, length, seed, sparsity=0.35):
        self.length = length
        self.seed = seed
        self.sparsity = sparsity

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_003 + i)
        image = torch.randn(3, 48, 48, generator=g)
        n = 0 if torch.rand(1, generator=g) < self.sparsity else int(torch.randint(1, MAX_BOXES + 1, (1,), generator=g))
        boxes = torch.rand(n, 4, generator=g)
        return image, boxes


def collate(items):
    images = torch.stack([a for a, _ in items])
    return images, [b for _, b in items]


def assign(boxes, grid=6, min_side=0.25):
    """Targets for the grid cells whose centre lies in a box that is large enough."""
    owner, target = [], []
    for k, b in enumerate(boxes):
        for cx, cy, w, h in b.tolist():
            if min(w, h) < min_side:
                continue
            owner.append((k, int(cy * grid), int(cx * grid)))
            target.append((cx, cy, w, h))
    return owner, torch.tensor(target)
