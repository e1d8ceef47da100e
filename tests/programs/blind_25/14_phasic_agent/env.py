import numpy as np


class GridForage:
    """Batch of small worlds with an agent, food and walls, seen as 3-channel pictures."""

    def __init__(self, count, size, rng):
        self.count, self.size, self.rng = count, size, rng
        self.walls = rng.random((count, size, size)) < 0.1
        self.agent = rng.integers(size, size=(count, 2))
        self.food = rng.integers(size, size=(count, 2))

    def observe(self):
        out = np.zeros((self.count, 3, self.size, self.size), np.float32)
        i = np.arange(self.count)
        out[:, 0] = self.walls
        out[i, 1, self.agent[:, 0], self.agent[:, 1]] = 1
        out[i, 2, self.food[:, 0], self.food[:, 1]] = 1
        return out

    def step(self, action):
        move = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])[action]
        target = np.clip(self.agent + move, 0, self.size - 1)
        free = ~self.walls[np.arange(self.count), target[:, 0], target[:, 1]]
        self.agent = np.where(free[:, None], target, self.agent)
        ate = (self.agent == self.food).all(axis=1)
        self.food[ate] = self.rng.integers(self.size, size=(int(ate.sum()), 2))
        return self.observe(), ate.astype(np.float32)
