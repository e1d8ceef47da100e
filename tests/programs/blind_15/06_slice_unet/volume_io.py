"""Minimal gzip-compressed volume format: 3 x int32 shape, then int16 voxels."""
import gzip

import numpy as np


def write_volume(path, array):
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(np.asarray(array.shape, np.int32).tobytes())
        f.write(np.ascontiguousarray(array, np.int16).tobytes())


def read_header(path):
    with gzip.open(path, "rb") as f:
        return tuple(np.frombuffer(f.read(12), np.int32))


def read_volume(path):
    with gzip.open(path, "rb") as f:
        shape = tuple(np.frombuffer(f.read(12), np.int32))
        return np.frombuffer(f.read(), np.int16).reshape(shape)
