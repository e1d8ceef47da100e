import time

import numpy as np


class CartEnv:
    """Point mass on a rail; `substeps` sets how finely the dynamics are integrated."""

    def __init__(self, seed, substeps):
        self.rng = np.random.default_rng(seed)
        self.substeps = substeps
        self.reset()

    def reset(self):
        self.state = self.rng.normal(0, 0.1, 4).astype(np.float32)
        self.t = 0
        return self.state.copy()

    def step(self, action):
        force = 1.0 if action else -1.0
        for _ in range(self.substeps):
            self.state[1] += 0.02 * force / self.substeps
            self.state[0] += self.state[1] / self.substeps
            time.sleep(0.004)
        self.t += 1
        done = self.t >= 100
        self.state[0] = np.clip(self.state[0], -2.0, 2.0)
        reward = float(np.exp(-abs(self.state[0])))
        return (self.reset() if done else self.state.copy()), reward, done


def env_main(remote, seed, substeps):
    env = CartEnv(seed, substeps)
    while True:
        command, value = remote.recv()
        if command == "step":
            remote.send(env.step(value))
        elif command == "reset":
            remote.send(env.reset())
        elif command == "close":
            remote.close()
            return
