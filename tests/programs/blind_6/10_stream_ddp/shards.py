"""Streaming token shards; every rank reads its own subset of shard files."""
import math
import os

import torch
from torch.utils.data import IterableDataset


def write_shards(root, count, seed=0):
    g = torch.Generator().manual_seed(seed)
    paths = []
    for i in range(count):
        rows = 160 + int(torch.randint(0, 40, (), generator=g))
        path = os.path.join(root, f"train-{i:05d}.pt")
        torch.save(torch.randint(0, 500, (rows, 17), generator=g), path)
        paths.append(path)
    return paths


class ShardStream(IterableDataset):
    def __init__(self, paths, rank, world_size):
        self.paths = paths[rank::world_size]

    def __iter__(self):
        for path in self.paths:
            rows = torch.load(path)
            for row in rows:
                yield row[:-1], row[1:]


def perplexity(losses):
    return math.exp(sum(losses) / max(len(losses), 1))
