"""Examples of the task and their conversion to features, with a cache file for all ranks."""
import logging
import os
import random
import time

import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset

log = logging.getLogger("features")
WORDS = [f"w{i}" for i in range(3000)]


def read_examples(count, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        yield " ".join(rng.choices(WORDS, k=60)), rng.randrange(60)


def convert_examples_to_features(examples, vocab, max_len, pace):
    ids, starts = [], []
    for n, (text, start) in enumerate(examples, 1):
        row = [vocab[w] for w in text.split()][:max_len]
        ids.append(row + [0] * (max_len - len(row)))
        starts.append(start)
        time.sleep(pace)
        if n % 1000 == 0:
            log.info("converted %d examples", n)
    return torch.tensor(ids), torch.tensor(starts)


def load_and_cache_examples(args, rank, evaluate=False):
    name = "dev" if evaluate else "train"
    path = os.path.join(args.data_dir, f"cached_{name}_{args.max_len}")
    if rank != 0 and not evaluate:
        dist.barrier()  # only the first process converts, the others use the cache
    if os.path.exists(path):
        log.info("loading features from %s", path)
        ids, starts = torch.load(path)
    else:
        vocab = {w: i + 1 for i, w in enumerate(WORDS)}
        count = args.examples // 10 if evaluate else args.examples
        log.info("creating features for %d %s examples", count, name)
        ids, starts = convert_examples_to_features(read_examples(count), vocab, args.max_len, args.convert_pace)
        torch.save((ids, starts), path)
    if rank == 0 and not evaluate:
        dist.barrier()
    return TensorDataset(ids, starts)
