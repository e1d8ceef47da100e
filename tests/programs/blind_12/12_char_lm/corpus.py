"""Token file of the corpus and the batches cut out of it."""
import os

import numpy as np


def prepare(path, tokens, vocab=50304, block=1 << 20, seed=0):
    """Writes a uint16 token file like prepare.py does."""
    rng = np.random.default_rng(seed)
    piece = rng.integers(0, vocab, block, dtype=np.uint16)
    with open(path, "wb") as f:
        for _ in range(tokens // block):
            f.write(np.roll(piece, int(rng.integers(block))).tobytes())
    return os.path.getsize(path)


class TokenFile:
    """Reads windows of the file in order, `stride` tokens apart, from a start that depends on the seed."""

    def __init__(self, path, block_size, batch_size, stride, seed):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.block_size = block_size
        self.batch_size = batch_size
        self.stride = stride
        self.cursor = int(np.random.default_rng(seed).integers(len(self.data)))

    def get_batch(self):
        ix = (self.cursor + self.stride * np.arange(self.batch_size)) % (len(self.data) - self.block_size - 1)
        self.cursor = int(ix[-1]) + self.stride
        x = np.stack([self.data[i:i + self.block_size].astype(np.int64) for i in ix])
        y = np.stack([self.data[i + 1:i + 1 + self.block_size].astype(np.int64) for i in ix])
        return x, y
