import resource

import gymnasium as gym
import numpy as np


class WalkerEnv(gym.Env):
    """A chain of masses; the solver is plain numpy and stiff for large actions."""

    metadata = {"render_modes": []}

    def __init__(self, links=12, cpu_budget=None):
        self.links = links
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2 * links,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (links,), np.float64)
        if cpu_budget:
            # the solver does not always converge, do not let one environment eat the node
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_budget, cpu_budget))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.q = 0.05 * self.np_random.standard_normal(self.links)
        self.v = np.zeros(self.links)
        self.t = 0
        return np.concatenate([self.q, self.v]), {}

    def step(self, action):
        substeps = 20 + int(60 * np.abs(action).mean())
        lap = -2 * np.eye(self.links) + np.eye(self.links, k=1) + np.eye(self.links, k=-1)
        for _ in range(substeps):
            acc = 4 * lap @ self.q - 0.1 * self.v + action
            self.v += 0.002 * acc
            self.q += 0.002 * self.v
        self.t += 1
        reward = float(self.v.mean() - 0.01 * np.square(action).sum())
        return np.concatenate([self.q, self.v]), reward, False, self.t >= 200, {}
