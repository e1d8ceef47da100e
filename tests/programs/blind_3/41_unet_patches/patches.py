import time
import numpy as np
import torch
from torch.utils.data import Dataset

class RandomRotate:
    def __init__(self, rs): self.rs = rs
    def __call__(self, vol):
        k = int(self.rs.randint(0, 4))
        return np.rot90(vol, k, (1, 2)).copy(), k * 90

class RandomContrast:
    def __init__(self, rs): self.rs = rs
    def __call__(self, vol): return vol * (1 + self.rs.uniform(-0.5, 0.5))

class PatchDataset(Dataset):
    def __init__(self, n, seed=47):
        self.n = n
        rs = np.random.RandomState(seed)
        self.rotate, self.contrast = RandomRotate(rs), RandomContrast(rs)
    def __len__(self): return self.n
    def __getitem__(self, i):
        vol = np.random.default_rng(i).standard_normal((24, 24, 24)).astype("float32")
        time.sleep(0.02)
        vol, angle = self.rotate(vol)
        return torch.from_numpy(self.contrast(vol))[None].float(), torch.from_numpy(vol)[None], angle
