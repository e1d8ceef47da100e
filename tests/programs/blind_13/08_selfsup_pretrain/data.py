import torch
from torch.utils.data import Dataset


class Frames(Dataset):
    """Synthetic camera frames, generated on demand."""

    def __init__(self, length, transform, size=112):
        self.length, self.transform, self.size = length, transform, size

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        image = torch.randint(0, 256, (3, self.size, self.size), dtype=torch.uint8, generator=g)
        return self.transform({"image": image, "index": i})


def collate_crops(samples):
    out = {}
    for kind in ("global", "local"):
        views = len(samples[0][kind])
        out[kind] = torch.cat([torch.stack([s[kind][v]["image"] for s in samples]) for v in range(views)])
    out["views"] = views
    return out
