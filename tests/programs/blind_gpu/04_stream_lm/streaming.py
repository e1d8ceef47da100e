import json
import os
import random
import time

import torch
from torch.utils.data import IterableDataset


def build_index(folder, chunks=48, seed=11):
    """Write an index of chunks with the number of documents in each."""
    rng = random.Random(seed)
    index = [{"chunk": f"chunk-{i:05d}.bin", "docs": rng.randint(10, 16)} for i in range(chunks)]
    path = os.path.join(folder, "index.json")
    with open(path + ".tmp", "w") as f:
        json.dump(index, f)
    os.replace(path + ".tmp", path)
    return path


class StreamingTokens(IterableDataset):
    """Reads the chunks assigned to a rank and cuts the documents into blocks."""

    def __init__(self, index_path, rank, world_size, block_size=128, vocab=2000, io_time=0.09):
        with open(index_path) as f:
            index = json.load(f)
        self.chunks = index[rank::world_size]
        self.block_size, self.vocab, self.io_time = block_size, vocab, io_time
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        buffer = []
        for chunk in self.chunks:
            rng = random.Random(f"{chunk['chunk']}-{self.epoch}")
            time.sleep(self.io_time)
            for _ in range(chunk["docs"]):
                buffer.extend(rng.randrange(self.vocab) for _ in range(rng.randint(90, 230)))
                while len(buffer) > self.block_size:
                    block, buffer = buffer[: self.block_size + 1], buffer[self.block_size :]
                    yield torch.tensor(block)
