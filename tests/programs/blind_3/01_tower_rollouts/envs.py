import time

import numpy as np


class TowerEnv:
    """Small stacking task; the layout decides how many contacts are solved per step."""

    def __init__(self, layout, seed):
        self.layout = layout
        self.rng = np.random.default_rng(seed)
        self.blocks = {"flat": 6, "arch": 8, "ramp": 7, "city": 90}[layout]
        self.t = 0

    def reset(self):
        self.t = 0
        self.state = self.rng.normal(size=16).astype(np.float32)
        return self.state

    def _contacts(self):
        force = 0.0
        for i in range(self.blocks):
            time.sleep(0.002)
            force += float(np.tanh(self.state).sum()) / (i + 1)
        return force

    def step(self, action):
        self.t += 1
        self.state = 0.9 * self.state + 0.1 * action
        reward = -abs(self._contacts())
        done = self.t >= 50
        if done:
            self.reset()
        return self.state, reward, done
