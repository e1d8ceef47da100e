import numpy as np


class ReplayMemory:
    """FIFO of single frames; stacking is done when sampling."""

    def __init__(self, capacity, shape, stack=4):
        self.capacity, self.stack = capacity, stack
        self.frames = np.zeros((capacity, *shape), dtype=np.uint8)
        self.actions = np.zeros(capacity, dtype=np.int64)
        self.rewards = np.zeros(capacity, dtype=np.float32)
        self.dones = np.zeros(capacity, dtype=np.float32)
        self.cursor = 0
        self.size = 0

    def append(self, frames, actions, rewards, dones):
        n = len(frames)
        idx = (self.cursor + np.arange(n)) % self.capacity
        self.frames[idx] = frames
        self.actions[idx] = actions
        self.rewards[idx] = rewards
        self.dones[idx] = dones
        self.cursor = (self.cursor + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, batch_size):
        idx = np.random.randint(self.stack, self.size - 1, size=batch_size)
        stacks = np.stack([self.frames[i - self.stack:i] for i in idx])
        nexts = np.stack([self.frames[i - self.stack + 1:i + 1] for i in idx])
        return stacks, self.actions[idx], self.rewards[idx], nexts, self.dones[idx]
