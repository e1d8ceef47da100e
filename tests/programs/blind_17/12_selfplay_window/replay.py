"""Replay window kept in its own process, reached over a manager connection."""
import random
from collections import deque
from multiprocessing.managers import BaseManager


class PrioritizedReplay:
    def __init__(self, config):
        self.config = config
        self.games = deque(maxlen=config.window_size)
        self.priorities = deque(maxlen=config.window_size)
        self.frames = 0
        self.played = 0

    def save_history(self, game):
        self.games.append(game)
        self.priorities.append(1.0 + abs(game["return"]))
        self.frames += len(game["actions"])
        self.played += 1

    def size(self):
        return len(self.games)

    def stats(self):
        return {"games": self.played, "frames": self.frames, "stored": len(self.games)}

    def sample_batch(self, n):
        games = random.choices(self.games, weights=self.priorities, k=n)
        batch = []
        for g in games:
            t = random.randrange(len(g["actions"]))
            ret = sum(r * 0.997 ** k for k, r in enumerate(g["rewards"][t:]))
            batch.append((g["observations"][t], g["actions"][t], ret))
        return batch


class SharedStorage:
    def __init__(self):
        self.weights = None
        self.step = 0

    def set(self, weights, step):
        self.weights, self.step = weights, step

    def get_weights(self):
        return self.weights

    def get_step(self):
        return self.step


class StorageManager(BaseManager):
    pass


StorageManager.register("Replay", PrioritizedReplay)
StorageManager.register("Storage", SharedStorage)
