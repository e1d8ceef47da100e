"""Archive of visited cells, used for the exploration bonus."""
from collections import defaultdict

import numpy as np


class Cell:
    __slots__ = ("visits", "best_return", "mean_obs")

    def __init__(self):
        self.visits = 0
        self.best_return = -np.inf
        self.mean_obs = np.zeros(8)

    def update(self, obs, episode_return):
        self.visits += 1
        self.best_return = max(self.best_return, episode_return)
        self.mean_obs += (obs - self.mean_obs) / self.visits


class CellArchive:
    def __init__(self, resolution, max_cells):
        self.resolution, self.max_cells = resolution, max_cells
        self.cells = defaultdict(Cell)
        self.recorded = []

    def key(self, obs):
        return np.floor(obs * self.resolution).astype(np.int16).tobytes()

    def bonus(self, obs):
        """1 for a new cell, falling with the number of visits."""
        return 1.0 / np.sqrt(1.0 + self.cells[self.key(obs)].visits)

    def record(self, obs, episode_return):
        key = self.key(obs)
        cell = self.cells[key]
        if cell.visits == 0:
            self.recorded.append(key)
            if len(self.recorded) > self.max_cells:
                self._evict()
        cell.update(obs, episode_return)

    def _evict(self):
        """Drops the oldest tenth of the recorded cells."""
        n = max(1, self.max_cells // 10)
        for key in self.recorded[:n]:
            self.cells.pop(key, None)
        del self.recorded[:n]
