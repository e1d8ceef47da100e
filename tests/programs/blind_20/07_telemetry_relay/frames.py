"""Frames of the antenna array: header and int16 samples."""
import struct

import numpy as np

HEADER = struct.Struct("<IIdI")
CHANNELS = 16


class FrameSource:
    def __init__(self, samples: int, seed: int):
        self.samples = samples
        self.rng = np.random.default_rng(seed)
        self.counter = 0

    def next_frame(self, timestamp: float) -> bytes:
        raw = self.rng.integers(-2000, 2000, size=(CHANNELS, self.samples), dtype=np.int16)
        payload = raw.tobytes()
        self.counter += 1
        return HEADER.pack(self.counter, CHANNELS, timestamp, len(payload)) + payload


def parse_header(data: bytes):
    return HEADER.unpack(data)
