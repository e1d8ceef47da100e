import logging
import os
import time

import numpy as np

from runlock import CacheLock

log = logging.getLogger("cache")


class ShardCache:
    def __init__(self, directory, shards, rows=2000, dim=32):
        self.directory, self.shards, self.rows, self.dim = directory, shards, rows, dim

    def path(self, shard):
        return os.path.join(self.directory, f"shard-{shard:03d}.npy")

    def build(self, shard):
        rng = np.random.default_rng(shard)
        x = rng.standard_normal((self.rows, self.dim)).astype(np.float32)
        np.save(self.path(shard), x / np.linalg.norm(x, axis=1, keepdims=True))
        time.sleep(0.25)

    def prepare(self, first):
        for shard in range(first):
            self.build(shard)

    def get(self, shard):
        if not os.path.exists(self.path(shard)):
            with CacheLock(self.directory):
                if not os.path.exists(self.path(shard)):
                    log.info("building shard %d", shard)
                    self.build(shard)
        return np.load(self.path(shard), mmap_mode="r")
