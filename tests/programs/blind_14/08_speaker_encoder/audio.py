"""Reading utterances and turning them into mel spectrograms."""
import numpy as np


class AudioProcessor:
    def __init__(self, sample_rate=16000, num_mels=40, fft_size=400, hop_length=160, preemphasis=0.97):
        self.sample_rate = sample_rate
        self.num_mels = num_mels
        self.fft_size = fft_size
        self.hop_length = hop_length
        self.preemphasis = preemphasis
        self.basis = self._mel_basis()

    def _mel_basis(self):
        bins = self.fft_size // 2 + 1
        mel = np.linspace(0, 2595 * np.log10(1 + self.sample_rate / 2 / 700), self.num_mels + 2)
        hz = 700 * (10 ** (mel / 2595) - 1)
        freq = np.linspace(0, self.sample_rate / 2, bins)
        up = (freq[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
        down = (hz[2:, None] - freq[None]) / (hz[2:] - hz[1:-1])[:, None]
        return np.maximum(0, np.minimum(up, down))

    def load_wav(self, speaker, utterance):
        rng = np.random.default_rng(speaker * 7919 + utterance)
        seconds = rng.uniform(2.5, 6.0)
        t = np.arange(int(seconds * self.sample_rate)) / self.sample_rate
        pitch = 90 + 2 * speaker
        wav = sum(np.sin(2 * np.pi * pitch * h * t + rng.uniform(0, 6)) / h for h in range(1, 12))
        return (wav + rng.normal(scale=0.05, size=t.size)).astype(np.float32)

    def trim_silence(self, wav, threshold=0.02):
        window = self.sample_rate // 100
        frames = wav[: wav.size // window * window].reshape(-1, window)
        loud = np.flatnonzero(np.sqrt((frames ** 2).mean(1)) > threshold)
        return wav[loud[0] * window:(loud[-1] + 1) * window] if loud.size else wav

    def melspectrogram(self, wav):
        y = wav.copy()
        for i in range(1, min(y.size, 4000)):
            y[i] = wav[i] - self.preemphasis * wav[i - 1]
        window = np.hanning(self.fft_size)
        frames = [y[s:s + self.fft_size] * window
                  for s in range(0, y.size - self.fft_size, self.hop_length)]
        power = np.abs(np.stack([np.fft.rfft(f) for f in frames])) ** 2
        return np.log(np.maximum(1e-5, power @ self.basis.T)).T.astype(np.float32)
