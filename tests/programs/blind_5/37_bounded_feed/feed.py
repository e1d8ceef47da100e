import time

import numpy as np


class SensorReader:
    """Cuts a recorded stream into windows."""

    def __init__(self, sid, channels, window):
        self.rng = np.random.default_rng(sid)
        self.channels = channels
        self.window = window

    def __iter__(self):
        n = 0
        while True:
            yield n, self.rng.standard_normal((16, self.channels, self.window)).astype(np.float32)
            n += 1


def reader_main(sid, channels, window, out):
    for n, batch in SensorReader(sid, channels, window):
        out.put((sid, n, time.time(), batch))
