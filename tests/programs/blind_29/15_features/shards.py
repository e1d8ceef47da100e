"""Feature shards on disk: one file per item group."""
import os

import numpy as np

ROWS, WIDTH = 64, 16


def write_shards(folder, count, seed):
    os.makedirs(folder)
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    for i in range(count):
        np.roll(block, i, axis=0).tofile(os.path.join(folder, f"{i:05d}.f32"))


class ShardStore:
    """Shards are opened at first use and stay open."""

    def __init__(self, folder):
        self.folder = folder
        self.files = {}

    def _open(self, shard):
        if shard not in self.files:
            self.files[shard] = open(os.path.join(self.folder, f"{shard:05d}.f32"), "rb")
        return self.files[shard]

    def rows(self, keys):
        out = np.empty((len(keys), WIDTH), dtype=np.float32)
        for n, key in enumerate(keys):
            shard, row = divmod(int(key), ROWS)
            file = self._open(shard)
            file.seek(row * WIDTH * 4)
            out[n] = np.frombuffer(file.read(WIDTH * 4), dtype=np.float32)
        return out
