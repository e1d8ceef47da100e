import time

import numpy as np


class PuckArena:
    """A puck on a rough table with walls, rendered to a small picture; physics runs in sub-steps."""

    def __init__(self, seed, size=24, substeps=40, frame_time=1 / 50):
        self.rng = np.random.default_rng(seed)
        self.size, self.substeps, self.frame_time = size, substeps, frame_time
        self.pushes = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], float) * 3.0

    def reset(self):
        self.pos = self.rng.uniform(0.1, 0.9, 2)
        self.vel = self.rng.normal(0, 0.3, 2)
        self.target = self.rng.uniform(0.1, 0.9, 2)
        self.t = 0
        return self.render()

    def render(self):
        img = np.zeros((self.size, self.size, 3), np.uint8)
        y, x = np.mgrid[0:self.size, 0:self.size] / self.size
        for k, p in enumerate((self.pos, self.target)):
            img[..., k] = (255 * np.exp(-((y - p[0]) ** 2 + (x - p[1]) ** 2) / 0.01)).astype(np.uint8)
        return img

    def step(self, action):
        begin = time.perf_counter()
        dt = self.frame_time / self.substeps
        for _ in range(self.substeps):
            self.vel += dt * (self.pushes[action] - 0.8 * self.vel)
            self.pos += dt * self.vel
            out = (self.pos < 0) | (self.pos > 1)
            self.vel[out] *= -0.9
            self.pos = np.clip(self.pos, 0, 1)
        self.t += 1
        reward = -float(np.linalg.norm(self.pos - self.target))
        time.sleep(max(0.0, self.frame_time - (time.perf_counter() - begin)))
        return self.render(), reward, self.t >= 250
