"""Motion clips for in-betweening."""
import numpy as np
import torch
from torch.utils.data import Dataset


class MotionClips(Dataset):
    def __init__(self, clips, frames=24, joints=12, seed=0):
        rng = np.random.default_rng(seed)
        phase = rng.uniform(0, 6.28, (clips, 1, joints * 3))
        t = np.linspace(0, 4, frames)[None, :, None]
        self.data = (np.sin(t + phase) + 0.02 * rng.standard_normal((clips, frames, joints * 3))).astype(np.float32)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        clip = torch.from_numpy(self.data[i])
        masked = clip.clone()
        masked[4:-4] = 0
        return masked, clip
