"""Decoding and resampling of uploaded audio."""
import functools
import io
import math
import struct
import wave

import numpy as np
import torch

LOWPASS_WIDTH = 64
ROLLOFF = 0.9475
BETA = 14.769656459379492


def sinc_kernel(orig, new):
    gcd = math.gcd(orig, new)
    orig, new = orig // gcd, new // gcd
    base = min(orig, new) * ROLLOFF
    width = math.ceil(LOWPASS_WIDTH * orig / base)
    idx = torch.arange(-width, width + orig, dtype=torch.float64)[None, None] / orig
    t = torch.arange(0, -new, -1, dtype=torch.float64)[:, None, None] / new + idx
    t = (t * base).clamp_(-LOWPASS_WIDTH, LOWPASS_WIDTH)
    window = torch.i0(BETA * torch.sqrt(1 - (t / LOWPASS_WIDTH) ** 2)) / torch.i0(torch.tensor(BETA, dtype=torch.float64))
    t = t * math.pi
    kernel = torch.where(t == 0, torch.ones_like(t), t.sin() / t) * window * (base / orig)
    return kernel.float(), width, orig, new


def apply_kernel(wav, kernel, width, orig, new):
    n = wav.numel()
    padded = torch.nn.functional.pad(wav, (width, width + orig))
    out = torch.nn.functional.conv1d(padded[None, None], kernel, stride=orig)
    return out.transpose(1, 2).reshape(-1)[: math.ceil(new * n / orig)]


@functools.lru_cache(maxsize=16)
def cached_kernel(orig, new):
    return sinc_kernel(orig, new)


def resample(wav, orig, new):
    if orig == new:
        return wav
    return apply_kernel(wav, *sinc_kernel(orig, new))


def _parse_mono_pcm16(data):
    """Fast path for what most browsers upload; None for anything else."""
    with wave.open(io.BytesIO(data)) as w:
        if w.getnchannels() != 1 or w.getsampwidth() != 2:
            return None
        pcm = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
        return torch.from_numpy(pcm.astype(np.float32) / 32768), w.getframerate()


def _decode_any(data):
    with wave.open(io.BytesIO(data)) as w:
        channels, depth, rate = w.getnchannels(), w.getsampwidth(), w.getframerate()
        raw = np.frombuffer(w.readframes(w.getnframes()), dtype=np.uint8)
    raw = raw.reshape(-1, channels, depth)
    if depth == 3:
        wide = np.zeros(raw.shape[:2] + (4,), np.uint8)
        wide[..., 1:] = raw
        pcm = wide.view("<i4")[..., 0].astype(np.float32) / 2 ** 31
    else:
        pcm = raw.copy().view("<i2")[..., 0].astype(np.float32) / 2 ** 15
    return torch.from_numpy(pcm.mean(1)), rate


def load_audio(data, target_rate=16000):
    fast = _parse_mono_pcm16(data)
    if fast is not None:
        wav, rate = fast
        return wav if rate == target_rate else apply_kernel(wav, *cached_kernel(rate, target_rate))
    wav, rate = _decode_any(data)
    return resample(wav, rate, target_rate)


def encode_wav(samples, rate, depth, channels):
    buf = io.BytesIO()
    with wave.open(buf, "wb") as w:
        w.setnchannels(channels)
        w.setsampwidth(depth)
        w.setframerate(rate)
        scaled = (samples * (2 ** (8 * depth - 1) - 1)).astype(np.int32)
        inter = np.repeat(scaled[:, None], channels, 1).astype("<i4").reshape(-1, 1).view(np.uint8)
        w.writeframes(inter[:, :depth].tobytes())
    return buf.getvalue()
