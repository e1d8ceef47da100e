import ctypes
import mmap
import multiprocessing as mp

import numpy as np


class SharedReplay:
    """Ring of transitions in anonymous shared memory, one writer slot range per actor."""

    def __init__(self, capacity, obs_shape, actors):
        self.capacity = capacity
        self.obs_shape = tuple(obs_shape)
        self.per_actor = capacity // actors
        obs_bytes = capacity * int(np.prod(obs_shape))
        self._map = mmap.mmap(-1, obs_bytes)
        self.obs = np.frombuffer(self._map, dtype=np.uint8).reshape((capacity,) + self.obs_shape)
        self._rewards = mp.RawArray(ctypes.c_float, capacity)
        self.rewards = np.frombuffer(self._rewards, dtype=np.float32)
        self._written = mp.RawArray(ctypes.c_longlong, actors)

    def append(self, actor, obs, reward):
        slot = actor * self.per_actor + self._written[actor] % self.per_actor
        self.obs[slot] = obs
        self.rewards[slot] = reward
        self._written[actor] += 1

    def filled(self):
        return [min(n, self.per_actor) for n in self._written]

    def sample(self, rng, size):
        filled = self.filled()
        ready = [a for a, n in enumerate(filled) if n]
        if not ready:
            return None
        actor = rng.choice(ready, size)
        slots = actor * self.per_actor + (rng.random(size) * np.asarray(filled)[actor]).astype(np.int64)
        return self.obs[slots], self.rewards[slots]

    @property
    def nbytes(self):
        return self.obs.nbytes
