import random
import time

import torch

SEGMENT_FRAMES = (180, 320)


class UtteranceReader:
    """Reads the part of a manifest which belongs to one rank."""

    def __init__(self, rank, world_size, num_items, seed=5, num_mel=80, read_time=0.12):
        rng = random.Random(seed)
        manifest = [rng.randint(*SEGMENT_FRAMES) for _ in range(num_items)]
        for i in range(53, num_items, 251):
            manifest[i] = rng.randint(8200, 8600)
        self.lengths = manifest[rank::world_size]
        self.num_mel, self.read_time = num_mel, read_time
        self.gen = torch.Generator().manual_seed(seed + rank)

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        for frames in self.lengths:
            time.sleep(self.read_time)
            features = torch.randn(1, frames, self.num_mel, generator=self.gen)
            targets = torch.randint(1, 64, (1, max(4, frames // 16)), generator=self.gen)
            yield features, targets
