"""A pole on a cart with a slow actuator; the start state is drawn wider than in the classic task."""
import numpy as np


class CartPoleWide:
    def __init__(self, seed, spread=0.075, limit=0.2618, max_steps=200):
        self.rng = np.random.default_rng(seed)
        self.spread = spread
        self.limit = limit
        self.max_steps = max_steps

    def reset(self):
        self.steps = 0
        self.state = self.rng.normal(scale=[0.05, 0.05, self.spread, 0.05])
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, th, w = self.state
        force = 10.0 if action == 1 else -10.0
        temp = (force + 0.05 * w * w * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        x_acc = temp - 0.05 * acc * np.cos(th) / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * x_acc, th + 0.02 * w, w + 0.02 * acc])
        self.steps += 1
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > self.limit or self.steps >= self.max_steps
        return self.state.astype(np.float32), 1.0, bool(done)
