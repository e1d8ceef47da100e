import time

import numpy as np
import torch
from torch.utils.data import Dataset


class ClipDecoder:
    def __init__(self, path, frame_size, gop=12):
        seed = abs(hash(path)) % (2**32)
        rng = np.random.default_rng(seed)
        self.path = path
        self.keyframes = rng.integers(0, 255, (gop, frame_size, frame_size, 3), dtype=np.uint8)
        self.residuals = rng.standard_normal((gop, frame_size, frame_size, 3)).astype(np.float32)

    def frame_at(self, index):
        k = index % len(self.keyframes)
        return self.keyframes[k].astype(np.float32) / 255 + self.residuals[k] * 0.01


class DecoderCache:
    def __init__(self):
        self._decoders = {}

    def get(self, path, frame_size):
        decoder = self._decoders.get(path)
        if decoder is None:
            decoder = ClipDecoder(path, frame_size)
            self._decoders[path] = decoder
        return decoder


_cache = DecoderCache()


class ClipDataset(Dataset):
    def __init__(self, num_episodes, frame_size, cameras=("wrist", "front")):
        self.paths = [f"videos/{cam}/episode_{i:06d}.mp4" for i in range(num_episodes) for cam in cameras]
        self.frame_size = frame_size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        decoder = _cache.get(self.paths[index], self.frame_size)
        time.sleep(0.15)
        frame = decoder.frame_at(index * 7)
        return torch.from_numpy(frame).permute(2, 0, 1).contiguous(), torch.tensor(float(index % 2))
