import uuid
from collections import deque

import numpy as np


class Replay:
    """Chunks of experience, the oldest is dropped when the capacity is reached."""

    def __init__(self, capacity, chunk, seed=0):
        self.capacity, self.chunk = capacity, chunk
        self.table = {}
        self.order = deque()
        self.rng = np.random.default_rng(seed)
        self.nbytes = 0

    def __len__(self):
        return len(self.order) * self.chunk

    def add(self, chunk):
        key = uuid.uuid4().hex
        self.table[key] = chunk
        self.order.append(key)
        self.nbytes += chunk["image"].nbytes
        while len(self) > self.capacity:
            old = self.table.pop(self.order.popleft())
            self.nbytes -= old["image"].nbytes

    def sample(self, n):
        picks = self.rng.integers(0, len(self.order), n)
        chunks = [self.table[self.order[int(i)]] for i in picks]
        return {k: np.stack([c[k] for c in chunks]) for k in ("image", "reward", "action")}
