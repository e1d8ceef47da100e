"""Cached mapping of a text dataset; only the main process does the work, the others load the cache file."""
import logging
import os
import pathlib
import random
import time

import torch
import torch.distributed as dist

WORDS = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "do"]


def read_shard(split, index, rows=48):
    rng = random.Random(f"{split}-{index}")
    time.sleep(0.15)
    return [" ".join(rng.choices(WORDS, k=32)) for _ in range(rows)]


def tokenize(text, length=32):
    ids = [(hash_word(w) % 997) + 3 for w in text.split()][:length]
    return ids + [0] * (length - len(ids))


def hash_word(word):
    value = 5381
    for char in word:
        value = (value * 33 + ord(char)) & 0xFFFFFFFF
    return value


def map_split(split, shards, cache_dir):
    log = logging.getLogger("mapping")
    path = pathlib.Path(cache_dir) / f"{split}.pt"
    if path.exists():
        return path
    log.info("mapping %s (%d shards)", split, shards)
    rows = []
    for index in range(shards):
        rows.extend(tokenize(text) for text in read_shard(split, index))
    tmp = path.with_suffix(f".tmp{os.getpid()}")
    torch.save(torch.tensor(rows), tmp)
    tmp.rename(path)
    return path


def load_split(split, shards, cache_dir, rank):
    log = logging.getLogger("mapping")
    if rank > 0:
        log.info("waiting for main process to perform the mapping of %s", split)
        dist.barrier()
    path = map_split(split, shards, cache_dir)
    if rank == 0:
        dist.barrier()
    data = torch.load(path)
    log.info("%s: %d rows", split, len(data))
    return data
