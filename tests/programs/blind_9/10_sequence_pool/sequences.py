import numpy as np


class ClipSequence:
    """Index of video clips: one entry per window, frames are made on demand."""

    def __init__(self, videos, windows, seed):
        rng = np.random.default_rng(seed)
        self.entries = [(f"video_{v:05d}.mp4", w * 16, [float(x) for x in rng.random(4)])
                        for v in range(videos) for w in range(windows)]

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, i):
        name, start, box = self.entries[i]
        rng = np.random.default_rng(hash(name) % 2 ** 32 + start)
        frames = rng.random((4, 3, 24, 24), dtype=np.float32)
        return frames.mean(0), float(sum(box) > 2)


def get_item(sequence, i):
    return sequence[i]
