"""Uniform replay of fixed length chunks with a lower bound on its size."""
import logging
import threading
import time

import numpy as np

log = logging.getLogger("replay")


class Replay:
    def __init__(self, capacity, min_size, length, obs_shape):
        self.capacity, self.min_size, self.length = capacity, min_size, length
        self.image = np.zeros((capacity, length, *obs_shape), np.uint8)
        self.action = np.zeros((capacity, length), np.int64)
        self.reward = np.zeros((capacity, length), np.float32)
        self.inserted = 0
        self.changed = threading.Condition()
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return min(self.inserted, self.capacity)

    def insert(self, chunk):
        with self.changed:
            i = self.inserted % self.capacity
            self.image[i], self.action[i], self.reward[i] = chunk
            self.inserted += 1
            self.changed.notify_all()

    def wait_until_filled(self):
        start = last = time.monotonic()
        with self.changed:
            while len(self) < self.min_size:
                self.changed.wait(1.0)
                now = time.monotonic()
                if now - last >= 20:
                    last = now
                    log.info("Replay sample is waiting %.0f seconds (too empty: %d < %d)", now - start, len(self),
                             self.min_size)

    def sample(self, batch):
        self.wait_until_filled()
        with self.changed:
            idx = self.rng.integers(0, len(self), batch)
            return self.image[idx], self.action[idx], self.reward[idx]
