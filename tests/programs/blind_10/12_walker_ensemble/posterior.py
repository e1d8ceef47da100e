import logging

import numpy as np
import torch
from torch import nn

log = logging.getLogger("walkers.posterior")


class Emulator(nn.Module):
    def __init__(self, dim):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(dim, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, theta):
        return self.net(theta)


class Survey:
    """The observed catalogue and the windows in which it is compared with the emulator."""

    def __init__(self, objects, seed=0):
        rng = np.random.default_rng(seed)
        self.flux = rng.lognormal(size=(objects, 8))
        self.sigma = 0.1 + 0.05 * rng.random((objects, 8))
        self.window = slice(0, 400)

    def misfit(self, level):
        part = (self.flux[self.window] - level) / self.sigma[self.window]
        return float(-0.5 * np.square(part).mean())
