"""Actor process: runs the navigation task with noisy actions and sends what it sees."""
import time

import numpy as np


class SimpleNavigation:
    def __init__(self, seed, dim=6):
        self.rng = np.random.default_rng(seed)
        self.dim = dim
        self.reset()

    def reset(self):
        self.pos = self.rng.standard_normal(self.dim).astype(np.float32) * 3
        self.t = 0
        return self.pos.copy()

    def step(self, action):
        self.pos[action % self.dim] += -0.3 if action < self.dim else 0.3
        self.t += 1
        dist = float(np.abs(self.pos).sum())
        return self.pos.copy(), -dist, dist < 0.5 or self.t > 100


def actor_loop(seed, out, chunk=64, frame_time=0.01):
    env = SimpleNavigation(seed)
    rng = np.random.default_rng(seed + 1)
    state = env.reset()
    rows = []
    while True:
        action = int(rng.integers(0, 2 * env.dim))
        nxt, reward, done = env.step(action)
        rows.append((state, action, reward, done))
        state = env.reset() if done else nxt
        if len(rows) == chunk:
            out.put(rows)
            rows = []
        time.sleep(frame_time)
