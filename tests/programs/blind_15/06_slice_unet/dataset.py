import glob
import os

import numpy as np
import torch
from torch.utils.data import Dataset

from volume_io import read_header, read_volume


class SliceDataset(Dataset):
    """All axial slices of all cases below root; a random crop of each slice is returned."""

    def __init__(self, root, crop):
        self.crop = crop
        self.images = sorted(glob.glob(os.path.join(root, "*_image.vol.gz")))
        self.index = []
        for c, path in enumerate(self.images):
            depth = read_header(path)[0]
            self.index += [(c, z) for z in range(depth)]

    def __len__(self):
        return len(self.index)

    def _load(self, case, z):
        image = read_volume(self.images[case])
        label = read_volume(self.images[case].replace("_image", "_label"))
        return image[z], label[z]

    def __getitem__(self, i):
        image, label = self._load(*self.index[i])
        h, w = image.shape
        y = np.random.randint(0, h - self.crop)
        x = np.random.randint(0, w - self.crop)
        sl = np.s_[y:y + self.crop, x:x + self.crop]
        img = image[sl].astype(np.float32)
        img = (img - img.mean()) / (img.std() + 1e-6)
        return torch.from_numpy(img)[None], torch.from_numpy(label[sl].astype(np.float32))[None]
