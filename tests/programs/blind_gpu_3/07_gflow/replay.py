"""Replay of past trajectories, kept by reward."""
import random


class ReplayBuffer:
    def __init__(self, capacity, warmup, seed=0):
        self.capacity = capacity
        self.warmup = warmup
        self.items = []
        self.position = 0
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.items)

    def push(self, trajectory):
        if len(self.items) < self.capacity:
            self.items.append(None)
        self.items[self.position] = trajectory
        self.position = (self.position + 1) % self.capacity

    def ready(self):
        return len(self.items) >= self.warmup

    def sample(self, n):
        return [self.items[self.rng.randrange(len(self.items))] for _ in range(n)]
