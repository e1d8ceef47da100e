import multiprocessing as mp
import time
from multiprocessing import shared_memory

import numpy as np


class Ring:
    """Fixed number of audio segments in shared memory; readers take them one at a time."""

    def __init__(self, ctx, slots, samples):
        self.slots, self.samples = slots, samples
        self.shm = shared_memory.SharedMemory(create=True, size=slots * samples * 4)
        self.lengths = ctx.Array("l", slots, lock=False)
        self.head, self.tail = ctx.Value("l", 0, lock=False), ctx.Value("l", 0, lock=False)
        self.access = ctx.Lock()

    def view(self, slot, n):
        return np.ndarray((n,), dtype=np.float32, buffer=self.shm.buf, offset=slot * self.samples * 4)

    def push(self, segment):
        while True:
            with self.access:
                if self.head.value - self.tail.value < self.slots:
                    slot = self.head.value % self.slots
                    self.view(slot, len(segment))[:] = segment
                    self.lengths[slot] = len(segment)
                    self.head.value += 1
                    return
            time.sleep(0.01)

    def take(self, convert):
        with self.access:
            if self.tail.value == self.head.value:
                return None
            slot = self.tail.value % self.slots
            out = convert(self.view(slot, self.lengths[slot]))
            self.tail.value += 1
            return out

    def close(self):
        self.shm.close()
        self.shm.unlink()
