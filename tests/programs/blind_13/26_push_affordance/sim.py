import collections
import time

import numpy as np


class PushSim:
    """An articulated object seen from above; a push moves it or does not."""

    def __init__(self, rng, step_time=0.01):
        self.rng = rng
        self.step_time = step_time

    def push(self):
        time.sleep(self.step_time)
        image = self.rng.random((1, 32, 32), dtype=np.float32)
        column = self.rng.integers(32)
        image[0, :, column] += 1.0
        moved = np.float32(column > 16)
        angle = column / 32 * np.pi
        return image, np.array([moved]), np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


class ReplayBuffer:
    def __init__(self, size=2000):
        self.items = collections.deque(maxlen=size)

    def add(self, image, label):
        self.items.append((image, label))

    def __len__(self):
        return len(self.items)

    def sample(self, n, rng):
        items = list(self.items)
        picks = [items[i] for i in rng.integers(len(items), size=n)]
        return np.stack([p[0] for p in picks]), np.stack([p[1] for p in picks])
