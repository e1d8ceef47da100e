import ctypes

import numpy as np


class NativeHeightmap:
    """Height map in native memory so that the physics code can share it."""

    def __init__(self, side):
        self.side = side
        self.libc = ctypes.CDLL(None)
        self.bytes = side * side * 4
        self.handle = self.libc.malloc(ctypes.c_size_t(self.bytes))

    def fill(self, seed):
        values = np.random.default_rng(seed).normal(size=(self.side, self.side)).astype(np.float32)
        ctypes.memmove(self.handle, values.ctypes.data, self.bytes)

    def height(self, x, y):
        cell = (ctypes.c_float * (self.side * self.side)).from_address(self.handle)
        return cell[int(y) * self.side + int(x)]


class FlatHeightmap:
    def __init__(self, side):
        self.side = side

    def fill(self, seed):
        pass

    def height(self, x, y):
        return 0.0
