import logging
import time

import numpy as np
import torch

from posterior import Emulator, Survey

log = logging.getLogger("walkers.sampler")


def init_worker():
    torch.set_num_threads(1)


class EnsembleSampler:
    """Affine invariant sampler; the log probabilities of all walkers are evaluated on a pool."""

    def __init__(self, pool, walkers, dim, objects, seed=0):
        self.survey = Survey(objects, seed)
        self.emulator = Emulator(dim)
        self._pool = pool
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.standard_normal((walkers, dim))
        self.lnp = np.full(walkers, -np.inf)

    def __getstate__(self):
        state = self.__dict__.copy()
        del state["_pool"]
        return state

    def log_prob(self, theta):
        with torch.no_grad():
            level = self.emulator(torch.from_numpy(theta).float()).item()
        return self.survey.misfit(level) - 0.5 * float(theta @ theta)

    def step(self, stretch=2.0):
        started = time.monotonic()
        walkers, dim = self.state.shape
        partner = self.state[self.rng.permutation(walkers)]
        z = ((stretch - 1.0) * self.rng.random(walkers) + 1.0) ** 2 / stretch
        proposal = partner + z[:, None] * (self.state - partner)
        lnp = np.array(self._pool.map(self.log_prob, proposal))
        accept = np.log(self.rng.random(walkers)) < (dim - 1) * np.log(z) + lnp - self.lnp
        self.state[accept] = proposal[accept]
        self.lnp[accept] = lnp[accept]
        return accept.mean(), time.monotonic() - started
