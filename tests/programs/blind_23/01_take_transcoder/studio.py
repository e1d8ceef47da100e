"""Stand-in for the recorder: writes the takes of one session as wav files."""
import wave

import numpy as np


def _voice(seconds, rate, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    pitch = rng.uniform(90, 240)
    tone = sum(np.sin(2 * np.pi * pitch * k * t) / k for k in range(1, 6))
    envelope = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(1.5, 4.0) * t)
    noise = rng.normal(0, 0.02, t.shape)
    return (9000 * (tone * envelope / 3 + noise)).clip(-32000, 32000).astype("<i2")


def record_session(folder, speakers, takes, seconds, rate=44100):
    paths = []
    for s in range(speakers):
        speaker_dir = folder / f"speaker_{s:02d}"
        speaker_dir.mkdir(parents=True)
        for t in range(takes):
            path = speaker_dir / f"take_{t:03d}.wav"
            with wave.open(str(path), "wb") as out:
                out.setnchannels(1)
                out.setsampwidth(2)
                out.setframerate(rate)
                out.writeframes(_voice(seconds, rate, s * 100 + t).tobytes())
            paths.append(path)
    return paths
