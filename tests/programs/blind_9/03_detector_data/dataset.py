import numpy as np
import torch
from torch.utils.data import Dataset


class AnnotationIndex:
    """Synthetic traffic annotations: boxes in relative coordinates, plus a 'difficult' flag."""

    def __init__(self, n_images, seed):
        rng = np.random.default_rng(seed)
        self.boxes, self.difficult = [], []
        for i in range(n_images):
            n = int(rng.integers(1, 7))
            centre = rng.uniform(0.15, 0.85, (n, 2))
            half = rng.uniform(0.03, 0.15, (n, 2))
            self.boxes.append(np.concatenate([centre - half, centre + half], 1).astype(np.float32))
            flags = rng.random(n) < 0.03
            self.difficult.append(flags)

    def __len__(self):
        return len(self.boxes)


class CropDetectionDataset(Dataset):
    def __init__(self, index, size=96, min_scale=0.4, seed=0):
        self.index = index
        self.size = size
        self.min_scale = min_scale
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.index)

    def _load(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.rand(3, self.size, self.size, generator=g)

    def _sample_window(self):
        w, h = self.rng.uniform(self.min_scale, 1.0, 2)
        x, y = self.rng.uniform(0, 1 - w), self.rng.uniform(0, 1 - h)
        return x, y, x + w, y + h

    def __getitem__(self, i):
        image = self._load(i)
        boxes, difficult = self.index.boxes[i], self.index.difficult[i]
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        while True:
            x0, y0, x1, y1 = self._sample_window()
            inside = ((centres > (x0, y0)) & (centres < (x1, y1))).all(1)
            keep = inside & ~difficult
            if keep.any():
                break
        s = self.size
        crop = image[:, int(y0 * s):max(int(y1 * s), int(y0 * s) + 1), int(x0 * s):max(int(x1 * s), int(x0 * s) + 1)]
        crop = torch.nn.functional.interpolate(crop[None], size=(s, s), mode="bilinear", align_corners=False)[0]
        target = torch.zeros(8, 4)
        kept = torch.from_numpy(boxes[keep])[:8]
        target[:len(kept)] = kept
        return crop, target, len(kept)
