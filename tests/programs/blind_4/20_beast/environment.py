import numpy as np


class GridChase:
    """Chase a moving target on a torus; the arena grows with the level."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.level = 0
        self.reset()

    def reset(self):
        size = 8 + self.level
        self.grid = np.zeros((size, size), dtype=np.float32)
        self.pos = self.rng.integers(0, size, 2)
        self.goal = self.rng.integers(0, size, 2)
        return self.observe()

    def observe(self):
        self.grid[:] = 0
        self.grid[tuple(self.pos)] = 1
        self.grid[tuple(self.goal)] = -1
        return self.grid.ravel().copy()

    def step(self, action):
        delta = [(0, 1), (0, -1), (1, 0), (-1, 0)][action]
        self.pos = (self.pos + delta) % len(self.grid)
        done = bool((self.pos == self.goal).all())
        return (self.reset() if done else self.observe()), float(done), done
