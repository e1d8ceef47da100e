import logging
import os
import pickle
import struct

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("dataloader")


class ImageFolder(Dataset):
    def __init__(self, volume, warm=None):
        self.volume, self.files = volume, volume.names()
        if warm:
            volume._seen.update(self.files)

    def __len__(self):
        return len(self.files)

    def shape(self, i):
        return struct.unpack("<HH", self.volume.read(self.files[i])[:4])

    def __getitem__(self, i):
        raw = np.frombuffer(self.volume.read(self.files[i])[4:], dtype=np.uint8).copy()
        return torch.from_numpy(raw).view(3, 24, 24).float() / 255, i % 10


def sort_ar(dataset, folder):
    """Indices of the validation images sorted by aspect ratio, for rectangular validation."""
    path = os.path.join(folder, "sorted_idxar.p")
    if os.path.exists(path):
        with open(path, "rb") as fh:
            return pickle.load(fh)
    idx2ar = []
    for i in range(len(dataset)):
        h, w = dataset.shape(i)
        idx2ar.append((i, round(w / h, 5)))
    idx2ar.sort(key=lambda x: x[1])
    with open(path + ".tmp", "wb") as fh:
        pickle.dump(idx2ar, fh)
    os.rename(path + ".tmp", path)
    return idx2ar


def get_loaders(volume, folder, rank, world_size, batch_size):
    log.info("Creating data loaders (this can take a while on a fresh volume)")
    if rank != 0:
        dist.barrier()
    dataset = ImageFolder(volume, warm=rank != 0)
    idx2ar = sort_ar(dataset, folder)
    if rank == 0:
        dist.barrier()
    mine = [i for i, _ in idx2ar][rank::world_size]
    mine = mine[: len(idx2ar) // world_size]
    train = DataLoader(torch.utils.data.Subset(dataset, mine), batch_size, shuffle=True, drop_last=True)
    val = DataLoader(torch.utils.data.Subset(dataset, mine[:256]), batch_size)
    return train, val
