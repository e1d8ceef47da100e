"""Per-clip analysis, runs in the pool."""
import time

import numpy as np

RATE = 8000


def synth(seed, seconds):
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    tone = np.sin(2 * np.pi * rng.uniform(80, 900) * t)
    return tone * rng.uniform(0.1, 1.0) + rng.normal(0, 0.1, t.size)


def frames(x, size=512, hop=256):
    n = 1 + max(0, (x.size - size) // hop)
    if x.size < size:
        return np.zeros((0, size))
    idx = np.arange(size)[None] + hop * np.arange(n)[:, None]
    return x[idx] * np.hanning(size)


def analyse(clip):
    x = synth(clip["seed"], clip["seconds"])
    spec = np.abs(np.fft.rfft(frames(x), axis=1))
    time.sleep(clip["fetch"])
    out = {"id": clip["id"], "frames": int(spec.shape[0])}
    if spec.shape[0]:
        freqs = np.fft.rfftfreq(512, 1 / RATE)
        out["centroid"] = float((spec * freqs).sum() / (spec.sum() + 1e-9))
        out["energy"] = float((spec ** 2).mean())
        out["mfcc"] = np.log(spec.mean(0)[:20] + 1e-6).tolist()
    return out
