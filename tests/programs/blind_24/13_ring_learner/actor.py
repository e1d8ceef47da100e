import time

import numpy as np


class DriftEnv:
    """A bright square wanders over a dark field."""

    def __init__(self, seed, size=64):
        self.rng = np.random.default_rng(seed)
        self.size = size
        self.at = self.rng.integers(8, size - 8, 2)

    def frame(self):
        img = self.rng.integers(0, 30, (self.size, self.size), dtype=np.uint8)
        r, c = self.at
        img[r - 3:r + 3, c - 3:c + 3] = 255
        return img

    def step(self, action):
        move = [(-1, 0), (1, 0), (0, -1), (0, 1)][action]
        before = np.abs(self.at - self.size // 2).sum()
        self.at = np.clip(self.at + move, 4, self.size - 4)
        return float(before - np.abs(self.at - self.size // 2).sum())


def rollout(seed, pipe, per_second, chunk=32):
    env = DriftEnv(seed)
    obs = env.frame()
    begun, sent = time.monotonic(), 0
    while True:
        rows = []
        for _ in range(chunk):
            act = int(env.rng.integers(4))
            rew = env.step(act)
            nxt = env.frame()
            rows.append((obs, act, rew, nxt))
            obs = nxt
        o, a, r, n = zip(*rows)
        pipe.send((np.stack(o), np.array(a), np.array(r, dtype=np.float32), np.stack(n)))
        sent += chunk
        time.sleep(max(0.0, begun + sent / per_second - time.monotonic()))
