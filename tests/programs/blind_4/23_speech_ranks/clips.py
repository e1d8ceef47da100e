import math
import random

import torch
from torch.utils.data import Dataset

TARGET_RATE = 8000


TAPS = 8


def sinc(x):
    return 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x)


def resample(wave, rate):
    """Windowed sinc interpolation to the target rate."""
    ratio = rate / TARGET_RATE
    out = []
    for n in range(int(len(wave) / ratio)):
        pos = n * ratio
        value = 0.0
        for i in range(max(int(pos) - TAPS, 0), min(int(pos) + TAPS, len(wave))):
            value += wave[i] * sinc(pos - i)
        out.append(value)
    return out


class Clips(Dataset):
    """Half-second clips. The studio corpus comes at 8 kHz, the field corpus at 22.05 kHz."""

    CORPORA = {"studio": 8000, "field": 22050}

    def __init__(self, corpus, n=8000):
        self.rate = self.CORPORA[corpus]
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = random.Random(i % 50)
        wave = [rng.random() for _ in range(64)] * (self.rate // 128 + 1)
        wave = wave[: self.rate // 2]
        if self.rate != TARGET_RATE:
            wave = resample(wave, self.rate)
        return torch.tensor(wave[:TARGET_RATE // 2 - 8]), i % 4
