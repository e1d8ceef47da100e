import os
import time

import torch


def build_vocabulary(n_docs=2600, seed=0):
    """Pair merges over a synthetic corpus, single process on purpose (deterministic)."""
    g = torch.Generator().manual_seed(seed)
    counts = torch.zeros(256 * 256)
    deadline = time.time() + 34
    for _ in range(n_docs):
        doc = torch.randint(0, 256, (4096,), generator=g)
        counts += torch.bincount(doc[:-1] * 256 + doc[1:], minlength=65536).float()
        time.sleep(0.008)
        if time.time() > deadline:
            break
    return counts.topk(512).indices


def prepare(path, rank, barrier):
    if rank == 0 and not os.path.exists(path):
        torch.save(build_vocabulary(), path)
    barrier()
    return torch.load(path)
