import threading

import numpy as np


class ReplayBuffer:
    """Ring of transitions. Storage is taken in blocks as the buffer fills, until the capacity is reached."""

    def __init__(self, capacity, obs_shape, block=1000):
        self.capacity, self.block = capacity, block
        self.obs_shape = obs_shape
        self.blocks = []
        self.pos = self.size = 0
        self.lock = threading.Lock()

    def _slot(self, i):
        b, o = divmod(i, self.block)
        while b >= len(self.blocks):
            self.blocks.append((np.zeros((self.block, *self.obs_shape), np.uint8), np.zeros(self.block, np.int64),
                                np.zeros(self.block, np.float32)))
        return self.blocks[b], o

    def add(self, obs, action, reward):
        with self.lock:
            (o, a, r), k = self._slot(self.pos)
            o[k], a[k], r[k] = obs, action, reward
            self.pos = (self.pos + 1) % self.capacity
            self.size = min(self.size + 1, self.capacity)

    def sample(self, n, rng):
        with self.lock:
            idx = rng.integers(self.size, size=n)
            rows = [self._slot(int(i)) for i in idx]
            return (np.stack([b[0][k] for b, k in rows]), np.array([b[1][k] for b, k in rows]),
                    np.array([b[2][k] for b, k in rows]))
