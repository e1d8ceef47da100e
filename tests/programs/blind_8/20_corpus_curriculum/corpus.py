import random

import torch
from torch.utils.data import IterableDataset, get_worker_info

STAGES = {
    "web": [f"web-{i:05d}" for i in range(12)],
    "books": ["books-00000", "books-00001"],
    "code": [f"code-{i:05d}" for i in range(6)],
}


class ShardStream(IterableDataset):
    def __init__(self, shards, length=48, vocab=512):
        self.shards = shards
        self.length = length
        self.vocab = vocab

    def read(self, shard, epoch):
        gen = torch.Generator().manual_seed(sum(map(ord, shard)) + epoch)
        for _ in range(200):
            base = torch.randint(0, self.vocab, (1,), generator=gen)
            yield (base + torch.arange(self.length) * 3) % self.vocab

    def __iter__(self):
        info = get_worker_info()
        shards = list(self.shards[info.id :: info.num_workers]) if info else list(self.shards)
        epoch = 0
        while True:
            random.Random(epoch).shuffle(shards)
            for shard in shards:
                yield from self.read(shard, epoch)
            epoch += 1
