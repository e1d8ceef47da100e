import logging
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

log = logging.getLogger("ct.volumes")


def write_study(root, count, depth=120, size=256, seed=3):
    """Writes synthetic studies, one compressed archive per patient."""
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    plane = np.add.outer(np.arange(size), np.arange(size)).astype(np.int16)
    paths = []
    for number in range(count):
        path = root / f"patient_{number:03d}.npz"
        if not path.exists():
            noise = rng.integers(0, 24, (1, size, size), dtype=np.int16)
            image = plane[None] + noise + np.arange(depth, dtype=np.int16)[:, None, None]
            label = (image > 300 + 20 * number).astype(np.uint8)
            np.savez_compressed(path, image=image, label=label)
        paths.append(path)
    log.info("%d studies in %s", len(paths), root)
    return paths


class SliceDataset(Dataset):
    """All axial slices of all studies, cropped at random."""

    def __init__(self, paths, depth=120, crop=64):
        self.paths = [str(p) for p in paths]
        self.depth = depth
        self.crop = crop

    def __len__(self):
        return len(self.paths) * self.depth

    def __getitem__(self, index):
        study, z = divmod(index, self.depth)
        with np.load(self.paths[study]) as archive:
            image = archive["image"][z]
            label = archive["label"][z]
        top, left = np.random.randint(0, image.shape[0] - self.crop, 2)
        window = (slice(top, top + self.crop), slice(left, left + self.crop))
        x = torch.from_numpy(image[window].astype(np.float32))[None] / 500.0
        y = torch.from_numpy(label[window].astype(np.float32))[None]
        return x, y
