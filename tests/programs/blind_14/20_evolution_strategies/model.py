import numpy as np
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, obs=24, hidden=64, actions=4):
        super().__init__()
        self.l1 = nn.Linear(obs, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.l3 = nn.Linear(hidden, actions)

    def forward(self, x):
        return self.l3(torch.tanh(self.l2(torch.tanh(self.l1(x)))))

    def es_params(self):
        return [(k, v) for k, v in self.state_dict().items()]


class Walker:
    """A cheap simulated walker."""

    def __init__(self, seed, obs=24, actions=4):
        self.rng = np.random.default_rng(seed)
        self.a = np.random.default_rng(1).normal(size=(obs, obs)) / np.sqrt(obs) * 0.9
        self.b = np.random.default_rng(2).normal(size=(obs, actions)) * 0.3
        self.state = np.zeros(obs)

    def reset(self):
        self.state = self.rng.normal(size=len(self.state))
        return self.state

    def step(self, action):
        self.state = np.tanh(self.a @ self.state + self.b @ action)
        return self.state, float(1.0 - np.square(self.state).mean())
