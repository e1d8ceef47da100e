import numpy as np


class ReplayBuffer:
    """Ring of pixel observations; pages are only touched as the ring is filled."""

    def __init__(self, capacity, shape):
        self.obs = np.empty((capacity, *shape), dtype=np.uint8)
        self.action = np.empty(capacity, dtype=np.int64)
        self.reward = np.empty(capacity, dtype=np.float32)
        self.capacity, self.pos, self.full = capacity, 0, False

    def add(self, obs, action, reward):
        self.obs[self.pos], self.action[self.pos], self.reward[self.pos] = obs, action, reward
        self.pos = (self.pos + 1) % self.capacity
        self.full |= self.pos == 0

    def sample(self, n, rng):
        idx = rng.integers(0, self.capacity if self.full else self.pos, n)
        return self.obs[idx], self.action[idx], self.reward[idx]
