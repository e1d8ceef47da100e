import contextlib
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("fit")


@dataclass
class Options:
    rounds: int
    steps: int
    holdout_docs: int
    batch: int = 16


@contextlib.contextmanager
def rank_zero_first(rank):
    """Body for rank 0 only (check the yielded flag); everybody meets at the end."""
    yield rank == 0
    dist.barrier()


class Scorer(nn.Module):
    def __init__(self, vocab=800, dim=48):
        super().__init__()
        self.emb = nn.EmbeddingBag(vocab, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 2))

    def forward(self, ids):
        return self.mlp(self.emb(ids))


def holdout_accuracy(model, docs):
    """Sliding-window scoring of long documents, one after the other."""
    hits = total = 0
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for d in range(docs):
            ids = torch.randint(0, 800, (400,), generator=g)
            windows = ids.unfold(0, 64, 8)
            votes = model(windows).argmax(dim=1)
            hits += int(votes.float().mean().round() == (ids.float().mean() > 400))
            total += 1
            time.sleep(0.38)
    return hits / total


def fit(rank, world, options):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = DistributedDataParallel(Scorer())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(100 + rank)
    for r in range(options.rounds):
        for step in range(options.steps):
            ids = torch.randint(0, 800, (options.batch, 64), generator=g)
            target = (ids.float().mean(dim=1) > 400).long()
            loss = nn.functional.cross_entropy(model(ids), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.08)
        log.info("round %d: loss %.4f", r, loss.item())
        with rank_zero_first(rank) as mine:
            if mine:
                t0 = time.time()
                acc = holdout_accuracy(model.module, options.holdout_docs)
                log.info("round %d: hold-out accuracy %.3f (%.0f s)", r, acc, time.time() - t0)
    dist.destroy_process_group()
