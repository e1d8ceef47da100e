"""Frames and their metadata travel over two named pipes."""
import os
import struct

import numpy as np


def make(folder):
    for name in ("frames", "meta"):
        os.mkfifo(os.path.join(folder, name))


class Writer:
    def __init__(self, folder):
        self.frames = open(os.path.join(folder, "frames"), "wb", buffering=0)
        self.meta = open(os.path.join(folder, "meta"), "wb", buffering=0)

    def put(self, number, frame):
        self.meta.write(struct.pack("!III", number, *frame.shape))
        self.frames.write(frame.tobytes())


class Reader:
    def __init__(self, folder):
        self.meta = open(os.path.join(folder, "meta"), "rb")
        self.frames = open(os.path.join(folder, "frames"), "rb")

    def __iter__(self):
        while head := self.meta.read(12):
            number, rows, cols = struct.unpack("!III", head)
            yield number, np.frombuffer(self.frames.read(rows * cols), dtype=np.uint8).reshape(rows, cols)
