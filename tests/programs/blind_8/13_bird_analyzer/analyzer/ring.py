import multiprocessing as mp

import numpy as np


class SegmentRing:
    def __init__(self, recordings, rate=8000):
        self.access = mp.Lock()
        self.next_index = mp.Value("i", 0, lock=False)
        self.recordings = recordings
        self.rate = rate

    def seconds(self, index):
        return 600 if index == 45 else 6 + index % 5

    def take(self):
        with self.access:
            index = self.next_index.value
            if index >= self.recordings:
                return None, None
            self.next_index.value = index + 1
            return index, self.load(index)

    def load(self, index):
        n = self.seconds(index) * self.rate
        rng = np.random.default_rng(index)
        samples = rng.standard_normal(n)
        frames = np.lib.stride_tricks.sliding_window_view(samples, 256)[::32]
        return np.array(frames * np.hanning(256))
