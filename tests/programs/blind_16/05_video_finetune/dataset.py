import random
import time
import zlib

import numpy as np
import torch
from torch.utils.data import IterableDataset

FRAME = (3, 24, 40)


class ClipReader:
    """Reads clips from the object store and decodes their frames."""

    def __init__(self, n_frames):
        self.n_frames = n_frames
        noise = np.random.default_rng(0).integers(0, 40, size=(n_frames, *FRAME), dtype=np.uint8)
        self._blob = zlib.compress(noise.tobytes(), 6)

    def read(self, index):
        time.sleep(0.15)  # fetch
        raw = np.frombuffer(zlib.decompress(self._blob), dtype=np.uint8)
        frames = raw.reshape(self.n_frames, *FRAME).astype(np.float32)
        return torch.from_numpy((frames + index % 17) / 255.0)


class VideoDataset(IterableDataset):
    """Yields {"video", "prompt"} in an order that differs from epoch to epoch."""

    def __init__(self, n_clips, n_frames, seed):
        self.n_clips, self.seed = n_clips, seed
        self.reader = ClipReader(n_frames)
        self.epoch = 0

    def __iter__(self):
        order = list(range(self.n_clips))
        random.Random(self.seed + self.epoch).shuffle(order)
        for index in order:
            yield {"video": self.reader.read(index), "prompt": index % 100}
        self.epoch += 1


class IterableDatasetShard(IterableDataset):
    """Gives each process its part of the batches of an iterable dataset."""

    def __init__(self, dataset, batch_size, num_processes, process_index):
        self.dataset = dataset
        self.batch_size = batch_size
        self.num_processes, self.process_index = num_processes, process_index

    def __iter__(self):
        real_batch_size = self.batch_size * self.num_processes
        first = self.process_index * self.batch_size
        current = []
        for element in self.dataset:
            current.append(element)
            if len(current) == real_batch_size:
                yield from current[first:first + self.batch_size]
                current = []
