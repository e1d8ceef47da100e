"""Prioritised replay shared between actors and learner."""
import random

import numpy as np


class SharedReplay:
    """Bounded list of transitions: dicts with obs, action, reward, next_obs, priority."""

    def __init__(self, items, lock, capacity):
        self.items = items
        self.lock = lock
        self.capacity = capacity

    def add(self, transition):
        with self.lock:
            self.items.append(transition)
            if len(self.items) > self.capacity:
                self.items.pop(0)

    def __len__(self):
        return len(self.items)

    def sample(self, n):
        with self.lock:
            weights = [t["priority"] for t in self.items]
            chosen = random.choices(range(len(weights)), weights=weights, k=n)
            batch = [self.items[i] for i in chosen]
        return chosen, {
            "obs": np.stack([t["obs"] for t in batch]),
            "next_obs": np.stack([t["next_obs"] for t in batch]),
            "action": np.array([t["action"] for t in batch]),
            "reward": np.array([t["reward"] for t in batch], dtype=np.float32),
        }
