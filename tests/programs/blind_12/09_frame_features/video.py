"""Frame source and the preprocessing done by the workers."""
import time

import numpy as np


class VideoReader:
    def __init__(self, frames, height=270, width=480, fps=24):
        self.frames = frames
        self.shape = (height, width)
        self.delay = 1.0 / fps

    def __iter__(self):
        for i in range(self.frames):
            time.sleep(self.delay)
            yield i, (i * 7919) % 251, self.shape


def preprocess(item):
    """Decode one frame, flatten the light and cut it to the network's input."""
    index, seed, (h, w) = item
    y, x = np.mgrid[0:h, 0:w].astype(np.float32)
    frame = np.stack([np.sin((x + seed * k) / 40.0) + np.cos((y - seed) / 31.0) for k in (1, 2, 3)])
    frame = (frame - frame.mean()) / (frame.std() + 1e-6)
    top, left = (h - 224) // 2, (w - 224) // 2
    return index, np.ascontiguousarray(frame[:, top:top + 224, left:left + 224])
