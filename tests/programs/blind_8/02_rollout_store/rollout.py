import multiprocessing as mp
import time

import numpy as np


class EpisodeBuffer:
    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes
        self.items = []
        self.size = 0

    def add(self, episode):
        self.items.append(episode)
        self.size += episode.nbytes

    @property
    def full(self):
        return self.size >= self.limit_bytes

    def drain(self):
        data = np.concatenate(self.items)
        self.items.clear()
        self.size = 0
        return data


class Collector(mp.Process):
    def __init__(self, index, out, stop, obs_dim):
        super().__init__(name=f"collector-{index}")
        self.index = index
        self.out = out
        self.stop_event = stop
        self.obs_dim = obs_dim

    def run(self):
        rng = np.random.default_rng(self.index)
        while not self.stop_event.is_set():
            state = rng.standard_normal((256, self.obs_dim), dtype=np.float32)
            time.sleep(0.25)
            self.out.put(state.cumsum(axis=0) * 0.05)
