"""Sharded stream with a shuffle buffer, as used for large robot datasets."""
import random
import time

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info


class ShardReader:
    def __init__(self, shard, items, read_time):
        self.shard, self.items, self.read_time = shard, items, read_time

    def __iter__(self):
        rng = np.random.default_rng(self.shard)
        for i in range(self.items):
            time.sleep(self.read_time)
            frame = rng.integers(0, 255, (128, 128, 3), dtype=np.uint8)
            yield {"frame": frame, "action": rng.standard_normal(7).astype(np.float32), "step": i}


class ShuffledStream(IterableDataset):
    def __init__(self, shards, items, shuffle_size, read_time, seed=0):
        self.shards, self.items = shards, items
        self.shuffle_size, self.read_time, self.seed = shuffle_size, read_time, seed

    def _raw(self, rng):
        info = get_worker_info()
        mine = list(range(self.shards))[info.id::info.num_workers]
        while True:
            rng.shuffle(mine)
            for shard in mine:
                yield from ShardReader(shard, self.items, self.read_time)

    def __iter__(self):
        rng = random.Random(self.seed + get_worker_info().id)
        buffer, raw = [], self._raw(rng)
        for item in raw:
            if len(buffer) < self.shuffle_size:
                buffer.append(item)
                if len(buffer) % 2 or len(buffer) < 32:
                    continue
                item = next(raw)
            k = rng.randrange(len(buffer))
            item, buffer[k] = buffer[k], item
            yield torch.from_numpy(item["frame"]), torch.from_numpy(item["action"])
