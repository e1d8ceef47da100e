import torch
from torch.utils.data import Dataset


class FramePairs(Dataset):
    def __init__(self, n, h, w):
        self.n, self.h, self.w = n, h, w

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        base = torch.rand(3, self.h // 8, self.w // 8, generator=g)
        img = torch.nn.functional.interpolate(base[None], size=(self.h, self.w), mode="bilinear",
                                              align_corners=False)[0]
        return {"rgb": img, "rgb_context": torch.roll(img, 2, dims=2)}
