"""Trainer role: computes gradients on its own shard and pushes them to the server."""
import collections
import logging
import time

import torch
import torch.distributed.rpc as rpc
from torch.nn import functional as F

log = logging.getLogger("trainer")

_losses = collections.deque(maxlen=40)


def recent_losses():
    return list(_losses)


class Shard:
    """Synthetic regression-to-class data, a little different for every trainer."""

    def __init__(self, seed, size=4096):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 32, generator=gen)
        proj = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
        self.y = (self.x @ proj + 0.3 * torch.randn(size, 4, generator=gen)).argmax(dim=1)
        self.gen = gen

    def batch(self, n):
        idx = torch.randint(0, len(self.x), (n,), generator=self.gen)
        return self.x[idx], self.y[idx]


def train(name, rank, args, build_model):
    import server

    model = build_model(args.width)
    shard = Shard(seed=100 + rank)
    started = time.time()
    for step in range(args.steps):
        version, weights = rpc.rpc_sync("ps", server.pull)
        with torch.no_grad():
            for p, w in zip(model.parameters(), weights):
                p.copy_(w)
        x, y = shard.batch(args.batch_size)
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        _losses.append(loss.item())
        rpc.rpc_sync("ps", server.push, args=(name, [p.grad for p in model.parameters()]))
        if step % 25 == 0:
            log.info("%s step %d version %d loss %.4f (%.1f s)", name, step, version,
                     loss.item(), time.time() - started)
        time.sleep(args.think_time)
