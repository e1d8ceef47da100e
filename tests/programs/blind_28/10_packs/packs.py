"""An index of samples in packs of captioned images, and the dataset that decodes them."""
import random

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


class SampleEntry:
    def __init__(self, key, pack, offset, parts):
        self.key = key
        self.pack = pack
        self.offset = offset
        self.parts = parts


def build_index(packs: int, samples_per_pack: int) -> list[SampleEntry]:
    index = []
    for pack in range(packs):
        offset = 0
        for i in range(samples_per_pack):
            size = 900 + (i * 37) % 400
            index.append(SampleEntry(f"{pack:04d}/{i:06d}", pack, offset, {"jpg": (offset, size), "json": (offset + size, 120)}))
            offset += size + 120
    return index


class PackDataset(IterableDataset):
    def __init__(self, index: list[SampleEntry], image_size: int, vocabulary: int, caption: int, seed: int):
        self.index = index
        self.image_size = image_size
        self.vocabulary = vocabulary
        self.caption = caption
        self.seed = seed

    def decode(self, entry: SampleEntry):
        rng = np.random.default_rng(entry.offset + entry.pack)
        image = rng.integers(0, 256, (3, self.image_size, self.image_size), dtype=np.uint8)
        tokens = rng.integers(0, self.vocabulary, self.caption)
        return torch.from_numpy(image).float().div_(255.0), torch.from_numpy(tokens)

    def __iter__(self):
        worker = get_worker_info()
        rng = random.Random(self.seed + (worker.id if worker else 0))
        while True:
            yield self.decode(self.index[rng.randrange(len(self.index))])
