"""Compressed volumes, read slice by slice."""
import gzip
import os
import struct

import numpy as np

HEADER = struct.Struct("<4sIII")


def write_volume(path, seed, shape):
    rng = np.random.default_rng(seed)
    depth, h, w = shape
    base = rng.integers(0, 900, (h, w), dtype=np.int16)
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(HEADER.pack(b"VOL1", depth, h, w))
        for z in range(depth):
            sl = np.roll(base, z, axis=1) // 8 + rng.integers(0, 24, (h, w), dtype=np.int16)
            f.write(sl.astype("<i2").tobytes())


class VolumeFile:
    """Gives access to single slices without loading the volume."""

    def __init__(self, path):
        self.path = path
        with gzip.open(path, "rb") as f:
            magic, self.depth, self.h, self.w = HEADER.unpack(f.read(HEADER.size))
        if magic != b"VOL1":
            raise ValueError(f"{path}: not a volume")

    def __len__(self):
        return self.depth

    def slice(self, z):
        nbytes = self.h * self.w * 2
        with gzip.open(self.path, "rb") as f:
            f.seek(HEADER.size + z * nbytes)
            raw = f.read(nbytes)
        return np.frombuffer(raw, dtype="<i2").reshape(self.h, self.w)


def make_archive(folder, count, shape):
    paths = []
    for i in range(count):
        path = os.path.join(folder, f"case{i:02d}.vol.gz")
        write_volume(path, i, shape)
        paths.append(path)
    return paths
