import logging
import time

import numpy as np

log = logging.getLogger("actor")


class PointMass:
    """Small continuous control task."""

    def __init__(self, seed, dim=6, horizon=200):
        self.rng = np.random.default_rng(seed)
        self.dim, self.horizon = dim, horizon

    def reset(self):
        self.t = 0
        self.pos = self.rng.normal(size=self.dim).astype(np.float32)
        self.vel = np.zeros(self.dim, dtype=np.float32)
        return np.concatenate([self.pos, self.vel])

    def step(self, action):
        self.t += 1
        self.vel = 0.9 * self.vel + 0.1 * action
        self.pos = self.pos + 0.1 * self.vel
        return np.concatenate([self.pos, self.vel]), -float(np.abs(self.pos).mean()), self.t >= self.horizon


def actor_main(index, conn, report_every):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    env = PointMass(seed=index)
    obs, reward, done = env.reset(), 0.0, False
    steps, since = 0, time.time()
    while True:
        conn.send((index, obs, reward, done))
        action = conn.recv()
        if action is None:
            return
        if done:
            obs, reward, done = env.reset(), 0.0, False
        else:
            obs, reward, done = env.step(action)
        steps += 1
        now = time.time()
        if now - since >= report_every:
            log.info("actor %d: %.0f env steps/s", index, steps / (now - since))
            steps, since = 0, now
