import torch
from torch.utils.data import Dataset


class Annotations(Dataset):
    """Images with boxes; about a fifth of the images show no object."""

    def __init__(self, size, image_size, seed, empty=0.2):
        g = torch.Generator().manual_seed(seed)
        self.image_size = image_size
        self.cells = image_size // 8
        self.has_object = torch.rand(size, generator=g) >= empty
        self.seed = seed

    def __len__(self):
        return len(self.has_object)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        image = torch.rand(3, self.image_size, self.image_size, generator=g)
        if not self.has_object[i]:
            return image, {"labels": torch.zeros(0, dtype=torch.long), "boxes": torch.zeros(0, 4)}
        n = int(torch.randint(1, 4, (1,), generator=g))
        start = torch.randint(0, self.cells // 2, (n, 2), generator=g)
        end = start + torch.randint(1, self.cells // 2, (n, 2), generator=g)
        return image, {"labels": torch.randint(0, 5, (n,), generator=g),
                       "boxes": torch.cat([start, end], 1).float()}


def collate(batch):
    images, targets = zip(*batch)
    return torch.stack(images), list(targets)
