import subprocess as sp
import sys
from pathlib import Path

import numpy as np

DECODER = Path(__file__).with_name("decode_clip.py")


class VideoReader:
    """Reads raw frames of one clip from the decoder's stdout."""

    def __init__(self, filename, size=(160, 120), nframes=600, bufsize=None):
        self.filename = filename
        self.size = size
        self.depth = 3
        self.nframes = nframes
        self.bufsize = bufsize or self.depth * size[0] * size[1] + 100
        self.pos = 0
        self.proc = None
        self.initialize()

    def initialize(self):
        self.close()
        cmd = [sys.executable, str(DECODER), "-i", self.filename,
               "--size", "%dx%d" % self.size, "--frames", str(self.nframes)]
        popen_params = {"bufsize": self.bufsize,
                        "stdout": sp.PIPE,
                        "stderr": sp.PIPE,
                        "stdin": sp.DEVNULL}
        self.proc = sp.Popen(cmd, **popen_params)

    def read_frame(self):
        w, h = self.size
        nbytes = self.depth * w * h
        data = self.proc.stdout.read(nbytes)
        if len(data) != nbytes:
            return None
        self.pos += 1
        return np.frombuffer(data, dtype="uint8").reshape((h, w, self.depth))

    def __iter__(self):
        while True:
            frame = self.read_frame()
            if frame is None:
                return
            yield frame

    def close(self):
        if self.proc:
            self.proc.terminate()
            self.proc.stdout.close()
            self.proc.stderr.close()
            self.proc.wait()
            self.proc = None
