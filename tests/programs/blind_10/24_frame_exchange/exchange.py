import logging
import os
from multiprocessing import shared_memory

import numpy as np

log = logging.getLogger("frames.exchange")


class FrameBlock:
    """A batch of frames in a named shared memory block."""

    def __init__(self, shm, shape):
        self.shm = shm
        self.shape = tuple(shape)
        self.array = np.ndarray(self.shape, dtype=np.float32, buffer=shm.buf)

    @classmethod
    def create(cls, name, shape):
        size = int(np.prod(shape)) * 4
        return cls(shared_memory.SharedMemory(name=name, create=True, size=size), shape)

    @classmethod
    def attach(cls, handle):
        name, shape = handle
        return cls(shared_memory.SharedMemory(name=name), shape)

    @property
    def handle(self):
        return self.shm.name, self.shape

    def close(self):
        self.array = None
        self.shm.close()


class BlockNamer:
    def __init__(self, prefix):
        self.prefix = f"{prefix}_{os.getpid()}"
        self.count = 0

    def __call__(self):
        self.count += 1
        return f"{self.prefix}_{self.count}"
