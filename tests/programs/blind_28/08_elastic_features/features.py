import numpy as np


def spectrogram(seed, seconds, rate=8000, window=256):
    """Synthesizes one clip and returns its log spectrogram and label."""
    rng = np.random.default_rng(seed)
    label = int(rng.integers(0, 8))
    t = np.arange(int(seconds * rate)) / rate
    wave = np.sin(2 * np.pi * (200 + 150 * label) * t + rng.uniform(0, 6.28))
    for _ in range(40):
        wave += 0.1 * rng.normal(size=t.size)
        wave = np.convolve(wave, np.hanning(9) / 4.0, mode="same")
        wave /= np.abs(wave).max()
    frames = wave[: wave.size // window * window].reshape(-1, window) * np.hanning(window)
    return np.log1p(np.abs(np.fft.rfft(frames, axis=1))).astype(np.float32), label
