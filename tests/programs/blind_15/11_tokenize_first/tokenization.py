import logging
import os
import random
import time

import torch

log = logging.getLogger("tokenize")
WORDS = ["tok%d" % i for i in range(1500)]


def _documents(split, n):
    rng = random.Random(split)
    for _ in range(n):
        label = rng.randrange(8)
        lo = label * 150
        yield label, [WORDS[rng.randrange(lo, lo + 450)] for _ in range(64)]


def _tokenize(words, vocab=2048):
    return [sum((j + 1) * b for j, b in enumerate(w.encode())) % vocab for w in words]


def tokenize_split(cache_dir, split, n, docs_per_second):
    path = os.path.join(cache_dir, split + ".pt")
    if os.path.exists(path):
        return torch.load(path, weights_only=True)
    ids, labels = [], []
    t0 = time.time()
    for i, (label, words) in enumerate(_documents(split, n), 1):
        ids.append(_tokenize(words))
        labels.append(label)
        ahead = i / docs_per_second - (time.time() - t0)
        if ahead > 0.02:
            time.sleep(ahead)
        if i % 2000 == 0:
            log.info("map %s: %d/%d examples", split, i, n)
    data = (torch.tensor(ids), torch.tensor(labels))
    torch.save(data, path + ".tmp")
    os.replace(path + ".tmp", path)
    return data
