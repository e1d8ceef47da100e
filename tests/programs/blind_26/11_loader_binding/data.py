"""Synthetic micrographs with an augmentation pipeline that runs in the loader workers."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Augment:
    def __init__(self, size, strength):
        self.size = size
        self.strength = strength

    def elastic(self, image, rng):
        dx = rng.standard_normal(image.shape).cumsum(axis=0)
        dy = rng.standard_normal(image.shape).cumsum(axis=1)
        rows, cols = np.indices(image.shape)
        scale = self.strength / max(1.0, np.abs(dx).max())
        r = np.clip(rows + dy * scale, 0, image.shape[0] - 1).astype(np.int64)
        c = np.clip(cols + dx * scale, 0, image.shape[1] - 1).astype(np.int64)
        return image[r, c]

    def denoise(self, image):
        spectrum = np.fft.rfft2(image)
        keep = np.abs(spectrum) > np.quantile(np.abs(spectrum), 0.4)
        return np.fft.irfft2(spectrum * keep, s=image.shape)

    def __call__(self, image, rng):
        for _ in range(2):
            image = self.elastic(image, rng)
        image = self.denoise(image)
        top, left = rng.integers(0, image.shape[0] - self.size, 2)
        crop = image[top:top + self.size, left:left + self.size]
        return (crop - crop.mean()) / (crop.std() + 1e-6)


class Micrographs(Dataset):
    def __init__(self, length, full=256, size=96, classes=6):
        self.length, self.full, self.classes = length, full, classes
        self.augment = Augment(size, strength=6.0)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        label = index % self.classes
        grid = np.linspace(0, (label + 1) * np.pi, self.full)
        image = np.outer(np.sin(grid), np.cos(grid)) + 0.5 * rng.standard_normal((self.full, self.full))
        return torch.from_numpy(self.augment(image, rng)).float().unsqueeze(0), label


def build_loader(args):
    dataset = Micrographs(args.images)
    return DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                      persistent_workers=True, prefetch_factor=4, drop_last=True)
