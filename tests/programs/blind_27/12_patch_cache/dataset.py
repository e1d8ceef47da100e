import numpy as np
import torch
from torch.utils.data import Dataset

from memory import Memory


def make_scan(shape, seed):
    """A synthetic CT: smooth background with bright blobs."""
    rng = np.random.default_rng(seed)
    scan = rng.standard_normal(tuple(shape), dtype=np.float32)
    z = np.linspace(-1, 1, shape[0], dtype=np.float32)[:, None, None]
    scan *= 0.2
    scan += z
    for _ in range(40):
        c = [int(rng.integers(16, s - 16)) for s in shape]
        scan[c[0] - 8:c[0] + 8, c[1] - 8:c[1] + 8, c[2] - 8:c[2] + 8] += 2.0
    return scan


def patch_features(scan, corner, size):
    """Intensity histogram and gradient energy of a cube."""
    z, y, x = corner
    cube = scan[z:z + size, y:y + size, x:x + size]
    hist, _ = np.histogram(cube, bins=32, range=(-3.0, 4.0))
    grads = [np.abs(np.diff(cube, axis=a)).mean() for a in range(3)]
    spectrum = np.abs(np.fft.rfftn(cube)).mean(axis=(0, 1))
    feats = np.concatenate([hist / cube.size, grads, np.log1p(spectrum)])
    return feats.astype(np.float32)


class PatchDataset(Dataset):
    def __init__(self, scan, cache_dir, positions, patch, seed):
        self.scan = scan
        self.patch = patch
        rng = np.random.default_rng(seed + 1)
        self.corners = [tuple(int(rng.integers(0, s - patch)) for s in scan.shape) for _ in range(positions)]
        self.features = Memory(cache_dir).cache(patch_features)
        self.num_features = 32 + 3 + patch // 2 + 1

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, index):
        corner = self.corners[index]
        feats = self.features(self.scan, corner, self.patch)
        label = min(3, int(4 * corner[0] / self.scan.shape[0]))
        return torch.from_numpy(feats), label
