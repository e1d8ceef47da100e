import numpy as np


class PendulumLite:
    """Underactuated pendulum with an adaptive time limit."""

    def __init__(self, seed, limit=150):
        self.rng = np.random.default_rng(seed)
        self.limit = limit

    def reset(self):
        self.th, self.om = self.rng.uniform(-np.pi, np.pi), 0.0
        self.t = 0
        return self._obs()

    def _obs(self):
        return np.array([np.cos(self.th), np.sin(self.th), self.om], np.float32)

    def step(self, action):
        torque = (action - 1) * 2.0
        self.om = np.clip(self.om + 0.05 * (15 * np.sin(self.th) + 3 * torque), -8, 8)
        self.th += 0.05 * self.om
        self.t += 1
        info = {}
        done = self.t >= self.limit
        if done:
            info["episode_length"] = self.t
        cost = ((self.th + np.pi) % (2 * np.pi) - np.pi) ** 2 + 0.1 * self.om**2
        return self._obs(), -float(cost), done, info
