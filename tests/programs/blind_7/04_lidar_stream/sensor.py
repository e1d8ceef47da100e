"""Replays a recorded drive as point clouds at the rate of the sensor."""
import time

import numpy as np


class DriveReplay:
    def __init__(self, n_frames, hz=10.0, points=60_000, seed=0):
        self.n_frames = n_frames
        self.period = 1.0 / hz
        self.points = points
        self.rng = np.random.default_rng(seed)

    def _scan(self, k):
        az = self.rng.uniform(0, 2 * np.pi, self.points).astype(np.float32)
        rad = self.rng.gamma(4.0, 6.0, self.points).astype(np.float32)
        z = self.rng.normal(-1.0, 0.7, self.points).astype(np.float32)
        refl = self.rng.random(self.points, dtype=np.float32)
        return np.stack([rad * np.cos(az), rad * np.sin(az), z, refl], 1)

    def frames(self):
        t_next = time.monotonic()
        for k in range(self.n_frames):
            delay = t_next - time.monotonic()
            if delay > 0:
                time.sleep(delay)
            t_next += self.period
            yield k, self._scan(k)
