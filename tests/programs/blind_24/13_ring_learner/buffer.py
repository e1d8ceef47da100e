import numpy as np


class RingBuffer:
    """Fixed-size storage of transitions; the oldest are overwritten."""

    def __init__(self, capacity, frame):
        self.capacity = capacity
        self.obs = np.zeros((capacity, *frame), dtype=np.uint8)
        self.next_obs = np.zeros((capacity, *frame), dtype=np.uint8)
        self.action = np.zeros(capacity, dtype=np.int64)
        self.reward = np.zeros(capacity, dtype=np.float32)
        self.pos = 0
        self.full = False

    def __len__(self):
        return self.capacity if self.full else self.pos

    def extend(self, obs, action, reward, next_obs):
        for k in range(len(action)):
            i = self.pos
            self.obs[i], self.next_obs[i] = obs[k], next_obs[k]
            self.action[i], self.reward[i] = action[k], reward[k]
            self.pos += 1
            if self.pos == self.capacity:
                self.pos, self.full = 0, True

    def sample(self, n, rng):
        idx = rng.integers(0, len(self), n)
        return self.obs[idx], self.action[idx], self.reward[idx], self.next_obs[idx]

    def nbytes(self):
        return self.obs.nbytes + self.next_obs.nbytes + self.action.nbytes + self.reward.nbytes
