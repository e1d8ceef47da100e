import numpy as np
import torch
from torch.utils.data import Dataset


class FrameDataset(Dataset):
    def __init__(self, paths, frames_per_demo):
        self.paths = paths
        self.frames_per_demo = frames_per_demo

    def __len__(self):
        return len(self.paths) * self.frames_per_demo

    def __getitem__(self, i):
        demo, t = divmod(i, self.frames_per_demo)
        with np.load(self.paths[demo]) as data:
            image = data["rgb"][t]
            action = data["action"][t]
        image = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        return image, torch.from_numpy(action)
