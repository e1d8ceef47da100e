"""Reading and preparing recordings."""
import wave

import numpy as np


def synthesise(path, seconds, rate, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    signal = sum(a * np.sin(2 * np.pi * f * t) for a, f in zip(rng.uniform(0.1, 0.3, 3), rng.uniform(80, 3000, 3)))
    signal *= 0.4 + 0.6 * np.abs(np.sin(2 * np.pi * rng.uniform(0.1, 0.4) * t))
    signal += rng.normal(0, 0.02, len(t))
    with wave.open(str(path), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes((np.clip(signal, -1, 1) * 32000).astype("<i2").tobytes())


def load(path):
    with wave.open(str(path), "rb") as w:
        rate = w.getframerate()
        raw = w.readframes(w.getnframes())
    return np.frombuffer(raw, "<i2").astype(np.float32) / 32768.0, rate


def augment(signal, rng):
    out = signal * np.float32(rng.uniform(0.7, 1.1))
    out += rng.normal(0, 0.01, len(signal)).astype(np.float32)
    return out


def loudest_window(signal, rate, seconds=0.25):
    """The stretch of a recording with the highest energy."""
    n = int(seconds * rate)
    hop = n // 2
    frames = np.lib.stride_tricks.sliding_window_view(signal, n)[::hop]
    best = int(np.argmax((frames ** 2).sum(axis=1))) * hop
    return signal[best:best + n]
