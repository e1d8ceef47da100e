import numpy as np


def load_clip(path, rate=16000, seconds=2):
    seed = sum(map(ord, path))
    rng = np.random.default_rng(seed)
    return rng.standard_normal(rate * seconds).astype(np.float32)


def log_spectrogram(wave, n_fft=512, hop=160):
    frames = np.lib.stride_tricks.sliding_window_view(wave, n_fft)[::hop]
    spec = np.abs(np.fft.rfft(frames * np.hanning(n_fft), axis=1))
    return np.log1p(spec).astype(np.float32)


def summarize(path):
    spec = log_spectrogram(load_clip(path))
    return np.concatenate([spec.mean(axis=0), spec.std(axis=0)])
