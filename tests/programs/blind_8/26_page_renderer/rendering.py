import os
import time

import numpy as np

_glyphs = []


def render(page):
    rng = np.random.default_rng(page)
    _glyphs.append(rng.standard_normal((300, 1000)))
    canvas = np.zeros((800, 800))
    for _ in range(4):
        y, x = rng.integers(0, 500, 2)
        canvas[y : y + 300, x : x + 300] += _glyphs[-1][:, :300]
        canvas = np.fft.irfft2(np.fft.rfft2(canvas) * 0.99, s=canvas.shape)
    time.sleep(0.15)
    return os.getpid(), float(canvas.sum())
