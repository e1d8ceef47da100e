import numpy as np
import torch


class ReplayBuffer:
    """Ring buffer over time steps, one column per environment."""

    def __init__(self, buffer_size, obs_shape, n_envs):
        self.buffer_size = buffer_size // n_envs
        self.n_envs = n_envs
        self.observations = np.zeros((self.buffer_size, n_envs) + obs_shape, np.uint8)
        self.next_observations = np.zeros((self.buffer_size, n_envs) + obs_shape, np.uint8)
        self.actions = np.zeros((self.buffer_size, n_envs), np.int64)
        self.rewards = np.zeros((self.buffer_size, n_envs), np.float32)
        self.dones = np.zeros((self.buffer_size, n_envs), np.float32)
        self.pos = 0
        self.full = False

    def size(self):
        return (self.buffer_size if self.full else self.pos) * self.n_envs

    def add(self, obs, next_obs, actions, rewards, dones):
        self.observations[self.pos] = obs
        self.next_observations[self.pos] = next_obs
        self.actions[self.pos] = actions
        self.rewards[self.pos] = rewards
        self.dones[self.pos] = dones
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full = True
            self.pos = 0

    def sample(self, n):
        upper = self.buffer_size if self.full else self.pos
        t = np.random.randint(0, upper, n)
        e = np.random.randint(0, self.n_envs, n)
        return tuple(torch.from_numpy(a[t, e]) for a in (self.observations, self.next_observations,
                                                         self.actions, self.rewards, self.dones))
