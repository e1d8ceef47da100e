"""Few-shot glyph data: a handful of alphabets, each with a few drawn examples."""
import numpy as np
import torch
from torch.utils.data import Dataset

SIDE = 28


def draw_glyphs(classes, per_class, seed):
    """Random strokes per class, jittered per example; uint8 images."""
    rng = np.random.default_rng(seed)
    images = np.zeros((classes, per_class, SIDE, SIDE), dtype=np.uint8)
    for c in range(classes):
        strokes = rng.integers(4, SIDE - 4, (5, 4))
        for k in range(per_class):
            for y0, x0, y1, x1 in strokes + rng.integers(-2, 3, strokes.shape):
                t = np.linspace(0, 1, 40)
                y = np.clip(y0 + t * (y1 - y0), 0, SIDE - 1).astype(int)
                x = np.clip(x0 + t * (x1 - x0), 0, SIDE - 1).astype(int)
                images[c, k, y, x] = 255
    return images


class GlyphDataset(Dataset):
    def __init__(self, images, noise=0.15):
        self.images = images
        self.noise = noise

    def __len__(self):
        return self.images.shape[0] * self.images.shape[1]

    def __getitem__(self, i):
        label, k = divmod(i, self.images.shape[1])
        x = torch.from_numpy(self.images[label, k]).float() / 255
        dy, dx = (int(v) for v in torch.randint(-2, 3, (2,)))
        x = torch.roll(x, (dy, dx), (0, 1)) + self.noise * torch.randn_like(x)
        return x[None], label
