"""A light multi-agent micromanagement environment, run in its own process."""
import time

import numpy as np


class SkirmishEnv:
    def __init__(self, agents, obs_dim, actions, limit, seed):
        self.agents, self.obs_dim, self.n_actions, self.limit = agents, obs_dim, actions, limit
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.t = 0
        self.health = np.ones(self.agents)
        return self.observe()

    def observe(self):
        obs = self.rng.normal(size=(self.agents, self.obs_dim)).astype(np.float32)
        obs[:, 0] = self.health
        return obs

    def step(self, actions):
        self.t += 1
        time.sleep(0.004)
        good = (actions == (self.t % self.n_actions)).mean()
        self.health -= 0.02 * (1 - good)
        return self.observe(), float(good), self.t >= self.limit


def env_worker(conn, kwargs):
    env = SkirmishEnv(**kwargs)
    while True:
        try:
            cmd, data = conn.recv()
        except EOFError:
            return
        if cmd == "reset":
            conn.send(env.reset())
        elif cmd == "step":
            conn.send(env.step(data))
        elif cmd == "close":
            return
