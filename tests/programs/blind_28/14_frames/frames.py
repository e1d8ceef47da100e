"""The frame pool in shared memory through which the server hands frames to its runners."""
from multiprocessing.shared_memory import SharedMemory

import numpy as np


class FramePool:
    def __init__(self, shm: SharedMemory, slots: int, size: int, owner: bool):
        self.shm, self.owner = shm, owner
        self.frames = np.ndarray((slots, 3, size, size), dtype=np.float32, buffer=shm.buf)

    @classmethod
    def create(cls, slots: int, size: int) -> "FramePool":
        return cls(SharedMemory(create=True, size=slots * 3 * size * size * 4), slots, size, True)

    @classmethod
    def attach(cls, name: str, slots: int, size: int) -> "FramePool":
        return cls(SharedMemory(name=name, create=False), slots, size, False)

    @property
    def name(self) -> str:
        return self.shm.name

    def close(self):
        del self.frames
        self.shm.close()
        if self.owner:
            try:
                self.shm.unlink()
            except FileNotFoundError:
                pass
