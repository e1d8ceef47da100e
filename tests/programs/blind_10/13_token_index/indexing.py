import logging
import time

import numpy as np

log = logging.getLogger("tokens.index")


class CorpusIndex:
    """Sample boundaries of a token stream, built once by the primary worker."""

    def __init__(self, shards, seed=0):
        self.shards = shards
        self.seed = seed
        self.offsets = None

    def build(self, read_seconds):
        offsets = []
        for shard in range(self.shards):
            rng = np.random.default_rng((self.seed, shard))
            lengths = rng.geometric(0.01, size=2000)
            offsets.append(np.cumsum(lengths))
            time.sleep(read_seconds)
            if shard % 50 == 0:
                log.info("indexed %d of %d shards", shard, self.shards)
        return np.concatenate(offsets)
