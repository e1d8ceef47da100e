"""Decode clips and compute log-mel like features."""
import os
import struct

import torch


class ClipError(Exception):
    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def write_clip(path, seed, seconds=1.0, rate=8000):
    g = torch.Generator().manual_seed(seed)
    n = int(seconds * rate)
    t = torch.arange(n) / rate
    wave = torch.sin(2 * torch.pi * (200 + 40 * (seed % 11)) * t) + 0.1 * torch.randn(n, generator=g)
    pcm = (wave * 12000).clamp(-32768, 32767).to(torch.int16).numpy().tobytes()
    if seed % 97 == 41:
        pcm = pcm[: len(pcm) // 3]
    with open(path, "wb") as f:
        f.write(struct.pack("<4sII", b"CLIP", rate, n) + pcm)


def read_clip(path):
    with open(path, "rb") as f:
        magic, rate, n = struct.unpack("<4sII", f.read(12))
        pcm = f.read()
    if magic != b"CLIP":
        raise ClipError(path, "bad magic")
    if len(pcm) != 2 * n:
        raise ClipError(path, f"expected {n} samples, got {len(pcm) // 2}")
    return torch.frombuffer(bytearray(pcm), dtype=torch.int16).float() / 32768, rate


def extract(path):
    torch.set_num_threads(1)
    wave, _ = read_clip(path)
    total = None
    for hop in (64, 96, 128):
        spec = torch.stft(wave, 256, hop, window=torch.hann_window(256), return_complex=True)
        mean = spec.abs().clamp_min(1e-5).log().mean(1)
        total = mean if total is None else total + mean
    return os.path.basename(path), total.numpy()
