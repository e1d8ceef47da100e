"""Audio loading and features for the ASR recipe."""
import os
import wave

import numpy as np
import torch

SAMPLE_RATE = 16_000


def write_corpus(root, count, seed):
    """A small corpus of utterances with leading and trailing silence."""
    rng = np.random.default_rng(seed)
    t = np.arange(6 * SAMPLE_RATE) / SAMPLE_RATE
    voices = []
    for pitch in rng.uniform(90, 300, size=6):
        voice = 0.3 * np.sin(2 * np.pi * pitch * t) * (np.sin(9 * t) > -0.4)
        voices.append(((voice + rng.normal(0, 0.001, len(t))) * 32767).astype(np.int16))
    silence = (rng.normal(0, 0.001, SAMPLE_RATE // 4) * 32767).astype(np.int16)
    manifest = []
    for i in range(count):
        seconds = rng.uniform(1.0, 5.0)
        voice = voices[i % len(voices)][:int(seconds * SAMPLE_RATE)]
        path = os.path.join(root, f"utt_{i:05d}.wav")
        with wave.open(path, "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(SAMPLE_RATE)
            f.writeframes(silence.tobytes() + voice.tobytes() + silence.tobytes())
        text = rng.integers(1, 40, size=int(4 * seconds)).tolist()
        manifest.append((path, text))
    return manifest


def split_on_silence(signal, top_db=30, frame=400, hop=160):
    """Non silent intervals, by the power of each frame against the loudest one."""
    power = []
    for start in range(0, max(1, len(signal) - frame), hop):
        chunk = signal[start:start + frame]
        power.append(float(np.mean(chunk * chunk)) + 1e-10)
    loud = 10 * np.log10(np.array(power) / max(power)) > -top_db
    pieces = [signal[i * hop:(i + 1) * hop] for i in np.flatnonzero(loud)]
    return np.concatenate(pieces) if pieces else signal


def load_audio(path, del_silence=True):
    with wave.open(path, "rb") as f:
        signal = np.frombuffer(f.readframes(f.getnframes()), dtype=np.int16)
    signal = signal.astype(np.float32) / 32767
    if del_silence:
        signal = split_on_silence(signal)
    return np.append(signal[0], signal[1:] - 0.97 * signal[:-1])


class FilterBank:
    def __init__(self, n_mels=80, n_fft=512, hop=160):
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)
        gen = torch.Generator().manual_seed(1)
        self.mel = torch.rand(n_mels, n_fft // 2 + 1, generator=gen)

    def __call__(self, signal):
        signal = torch.as_tensor(signal, dtype=torch.float32)
        spec = torch.stft(signal, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log1p(self.mel @ spec.abs().square()).T
