import multiprocessing as mp

import numpy as np


class VolumeReader(mp.Process):
    def __init__(self, index, ready):
        super().__init__(name=f"reader-{index}", daemon=True)
        self.index = index
        self.ready = ready

    def run(self):
        rng = np.random.default_rng(self.index)
        while True:
            volume = rng.standard_normal((1, 1, 40, 64, 64), dtype=np.float32)
            self.ready.put((volume - volume.mean()) / volume.std())
