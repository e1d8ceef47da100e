"""Memory mapped feature matrix that is rebuilt from time to time."""
import logging
import os
import time

import numpy as np
from numpy.lib.format import open_memmap

log = logging.getLogger("store")


class FeatureStore:
    def __init__(self, path, dim=256):
        self.path, self.dim = path, dim

    def write(self, rows, seed):
        rng = np.random.default_rng(seed)
        mm = open_memmap(self.path, mode="w+", dtype=np.float32, shape=(rows, self.dim))
        for i in range(0, rows, 1000):
            n = min(1000, rows - i)
            mm[i : i + n] = rng.standard_normal((n, self.dim), dtype=np.float32)
        mm.flush()

    def open(self):
        return np.load(self.path, mmap_mode="r")


def refresher(store, rows, every, shrink):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s refresher %(message)s", force=True)
    version = 1
    while True:
        time.sleep(every)
        rows = int(rows * shrink)
        store.write(rows, version)
        log.info("version %d written, %d live rows (%.1f MiB)", version, rows,
                 os.path.getsize(store.path) / 2**20)
        version += 1
