import ctypes
import mmap
import os

import numpy as np

from packing import ENTRY


class PackedShard:
    """Read documents straight out of the mapped file."""

    def __init__(self, root, name):
        self.index = np.fromfile(os.path.join(root, name + ".idx"), dtype=ENTRY)
        with open(os.path.join(root, name + ".bin"), "rb") as f:
            self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def __len__(self):
        return len(self.index)

    def read(self, i):
        entry = self.index[i]
        raw = ctypes.string_at(self._base + int(entry["offset"]), int(entry["length"]) * 4)
        return np.frombuffer(raw, dtype=np.int32)
