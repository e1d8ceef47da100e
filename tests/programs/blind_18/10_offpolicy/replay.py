import logging
import signal
from multiprocessing.connection import wait

import numpy as np

log = logging.getLogger("replay")


class ReplayBuffer:
    def __init__(self, capacity, obs_dim, seed):
        self.capacity = capacity
        self.obs = np.zeros((capacity, obs_dim), dtype=np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), dtype=np.float32)
        self.action = np.zeros(capacity, dtype=np.int64)
        self.reward = np.zeros(capacity, dtype=np.float32)
        self.size = self.position = 0
        self.rng = np.random.RandomState(seed)

    def load_offline(self, n, chunk=250_000):
        """Fill the buffer with the logged transitions of the old policy."""
        rng = np.random.default_rng(1)
        for start in range(0, n, chunk):
            m = min(chunk, n - start)
            obs = rng.standard_normal((m, self.obs.shape[1]), dtype=np.float32)
            action = rng.integers(0, 4, m)
            self.extend(obs, action, obs[:, 0] * (action - 1.5).astype(np.float32), 0.9 * obs)

    def extend(self, obs, action, reward, next_obs):
        idx = (self.position + np.arange(len(obs))) % self.capacity
        self.obs[idx], self.action[idx] = obs, action
        self.reward[idx], self.next_obs[idx] = reward, next_obs
        self.position = (self.position + len(obs)) % self.capacity
        self.size = min(self.capacity, self.size + len(obs))

    def sample(self, batch_size):
        idxs = self.rng.choice(self.size, size=batch_size, replace=False)
        return self.obs[idxs], self.action[idxs], self.reward[idxs], self.next_obs[idxs]


def replay_server(capacity, obs_dim, offline, seed, learner, actors, walltime):
    signal.alarm(walltime)
    buffer = ReplayBuffer(capacity, obs_dim, seed)
    buffer.load_offline(offline)
    log.info("%d offline transitions loaded", buffer.size)
    while True:
        for conn in wait([learner, *actors]):
            if conn is learner:
                learner.send(buffer.sample(learner.recv()))
            else:
                buffer.extend(*conn.recv())
