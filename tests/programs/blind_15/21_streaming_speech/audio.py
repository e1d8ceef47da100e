"""Shards of compressed utterances and what is done with them."""
import os
import struct
import zlib

import numpy as np

RATE = 16_000


def make_utterance(rng):
    t = np.arange(2 * RATE) / RATE
    f0 = rng.uniform(90, 260)
    wave = sum(np.sin(2 * np.pi * f0 * k * t) / k for k in range(1, 4))
    pcm = (8000 * wave / np.abs(wave).max()).astype(np.int16)
    return f0, zlib.compress(pcm.tobytes(), 1)


def write_shards(folder, n_shards, per_shard, n_speakers=48, seed=0):
    rng = np.random.default_rng(seed)
    speakers = [make_utterance(rng) for _ in range(n_speakers)]
    paths = []
    for s in range(n_shards):
        path = os.path.join(folder, f"train-{s:05d}-of-{n_shards:05d}.bin")
        with open(path, "wb") as f:
            for i in rng.integers(n_speakers, size=per_shard):
                f0, data = speakers[i]
                f.write(struct.pack("!If", len(data), f0) + data)
        paths.append(path)
    return paths


def read_shard(path):
    with open(path, "rb") as f:
        while True:
            head = f.read(8)
            if len(head) < 8:
                return
            size, f0 = struct.unpack("!If", head)
            yield {"audio": f.read(size), "f0": f0}


def extract_features(example, n_fft=512, hop=48, n_bands=32):
    pcm = np.frombuffer(zlib.decompress(example["audio"]), dtype=np.int16).astype(np.float64) / 32768
    pcm = np.append(pcm[0], pcm[1:] - 0.97 * pcm[:-1])
    frames = np.lib.stride_tricks.sliding_window_view(pcm, n_fft)[::hop] * np.hanning(n_fft)
    power = np.abs(np.fft.rfft(frames, 4 * n_fft, axis=1)) ** 2
    edges = np.linspace(0, power.shape[1] // 8, n_bands + 1).astype(int)
    bands = np.add.reduceat(power, edges[:-1], axis=1)
    return {"features": np.log(bands + 1e-8).astype(np.float32), "f0": np.float32(example["f0"] / 200)}
