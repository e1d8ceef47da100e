"""Image files on a volume that was restored from a snapshot: first reads fetch the block."""
import os
import struct
import time

import numpy as np


class Volume:
    def __init__(self, root, first_touch=0.018):
        self.root, self.first_touch = root, first_touch
        self._seen = set()
        self._ready = None

    def populate(self, count, seed=0):
        rng = np.random.default_rng(seed)
        for n in range(count):
            h, w = (int(v) for v in rng.integers(180, 520, 2))
            with open(os.path.join(self.root, "val_%05d.img" % n), "wb") as fh:
                fh.write(struct.pack("<HH", h, w) + rng.bytes(3 * 24 * 24))

    def names(self):
        return sorted(f for f in os.listdir(self.root) if f.endswith(".img"))

    def _fetch_block(self):
        self._ready = (self._ready or time.time()) + self.first_touch
        time.sleep(max(0.0, self._ready - time.time()))

    def read(self, name):
        if name not in self._seen:
            self._fetch_block()
            self._seen.add(name)
        with open(os.path.join(self.root, name), "rb") as fh:
            return fh.read()
