import time

import numpy as np


class CrafterLike:
    """A cheap stand-in for the environment: 64 x 64 images."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.image = self.rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)

    def step(self, action):
        self.image = np.roll(self.image, 1 + action % 3, axis=action % 2)
        return self.image, float(self.rng.random() < 0.01)


def actor(index, length, chunks, stop):
    env, rng = CrafterLike(index), np.random.default_rng(100 + index)
    while not stop.is_set():
        images = np.empty((length, 64, 64, 3), dtype=np.uint8)
        rewards = np.empty(length, dtype=np.float32)
        actions = rng.integers(0, 17, length)
        for t in range(length):
            images[t], rewards[t] = env.step(int(actions[t]))
        time.sleep(0.25)  # rendering
        chunks.put({"image": images, "reward": rewards, "action": actions, "actor": index})
