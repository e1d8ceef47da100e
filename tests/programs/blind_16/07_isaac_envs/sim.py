"""A stand-in for the simulator app: slow to start, needs memory on the device."""
import sys
import time

import numpy as np


class SimulationApp:
    """Boots the renderer. As the native launcher does, it ends the process when the boot fails."""

    MEMORY = 6  # GiB for one instance

    def __init__(self, headless, available):
        self.headless = headless
        for stage in range(4):
            time.sleep(0.9)
            if stage == 3 and available < self.MEMORY:
                sys.stdout.flush()
                sys.exit(1)


class StackCubeEnv:
    obs_dim, act_dim = 18, 7

    def __init__(self, num_envs, seed):
        self.rng = np.random.default_rng(seed)
        self.num_envs = num_envs
        self.state = np.zeros((num_envs, self.obs_dim))

    def reset(self):
        self.state = self.rng.standard_normal((self.num_envs, self.obs_dim))
        return self.state.copy()

    def step(self, actions):
        time.sleep(0.02)
        self.state[:, :self.act_dim] += 0.05 * actions
        self.state += 0.01 * self.rng.standard_normal(self.state.shape)
        return self.state.copy(), -np.abs(self.state[:, :3]).sum(axis=1)
