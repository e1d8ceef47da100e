import multiprocessing as mp
import time

import numpy as np


class Camera(mp.Process):
    def __init__(self, index, records, stop, fps):
        super().__init__(name=f"camera-{index}")
        self.index = index
        self.records = records
        self.stop_event = stop
        self.period = 1 / fps

    def run(self):
        rng = np.random.default_rng(self.index)
        n = 0
        while not self.stop_event.is_set():
            t = time.time()
            frame = rng.integers(0, 40, (320, 480), dtype=np.uint8)
            self.records.put((self.index, n, frame))
            n += 1
            time.sleep(max(0.0, self.period - (time.time() - t)))
