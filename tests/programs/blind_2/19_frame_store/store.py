import ctypes
import mmap
import os

import numpy as np
import torch
from torch.utils.data import Dataset

_libc = ctypes.CDLL(None)
_libc.memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]

FRAME = 3 * 32 * 32


def write_store(path, n, seed=0):
    """n frames of 8 bit pixels, after them an index of (offset, label) pairs."""
    rng = np.random.default_rng(seed)
    index = np.empty((n, 2), np.int64)
    with open(path, "wb") as fh:
        for i in range(n):
            index[i] = fh.tell(), rng.integers(10)
            fh.write(rng.integers(0, 255, FRAME, dtype=np.uint8).tobytes())
    # late arrivals are kept in the overflow segment
    index[n * 2 // 3, 0] *= 4096
    np.save(path + ".idx.npy", index)


class FrameStore(Dataset):
    def __init__(self, path):
        self.path = path
        self.index = np.load(path + ".idx.npy")
        self._map = None

    def _base(self):
        if self._map is None:
            fd = os.open(self.path, os.O_RDONLY)
            self._map = mmap.mmap(fd, 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
            os.close(fd)
            self._addr = np.frombuffer(self._map, np.uint8).ctypes.data
        return self._addr

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        offset, label = self.index[i]
        out = np.empty(FRAME, np.uint8)
        _libc.memcpy(out.ctypes.data, self._base() + int(offset), FRAME)
        return torch.from_numpy(out).view(3, 32, 32).float() / 255, int(label)
