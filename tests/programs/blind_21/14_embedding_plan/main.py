"""Click-through model with model-parallel embedding tables, trained on gloo ranks."""
import argparse
import logging
import os
import socket
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from planner import EmbeddingShardingPlanner, TableConfig

log = logging.getLogger("ctr")
FEATURES = ["user_id", "item_id", "seller", "category", "brand", "country", "device", "query", "campaign",
            "hour_of_week", "browser", "referrer"]


def build_tables(rows, dim):
    return [TableConfig(name, rows, dim, 1.0 + i % 3) for i, name in enumerate(FEATURES)]


class ClickLog:
    """Reads a part of yesterday's clicks; every rank has its own part."""

    def __init__(self, rank, rows, n=40000):
        self.gen = torch.Generator().manual_seed(rank)
        self.ids = torch.randint(0, rows, (n, len(FEATURES)), generator=self.gen)
        self.dense = torch.randn(n, 8, generator=self.gen)
        self.clicked = (torch.rand(n, generator=self.gen) < 0.2).float()

    def warm_up(self, seconds):
        deadline = time.time() + seconds
        while time.time() < deadline:
            self.ids.unique(dim=0).shape
            time.sleep(0.2)

    def batch(self, size):
        at = torch.randint(0, len(self.ids), (size,), generator=self.gen)
        return self.ids[at], self.dense[at], self.clicked[at]


class ShardedEmbeddings:
    """Every rank keeps a replica for the forward pass, the owner holds the optimizer state."""

    def __init__(self, tables, plan, rank, lr=0.05):
        self.plan, self.rank, self.lr = plan, rank, lr
        gen = torch.Generator().manual_seed(1000 + rank)
        self.weights = {t.name: (torch.randn(t.rows, t.dim, generator=gen) * 0.01).requires_grad_()
                        for t in tables if t.name in plan}
        self.state = {n: torch.zeros_like(w) for n, w in self.weights.items() if plan[n] == rank}

    def broadcast(self):
        for name in sorted(self.weights):
            dist.broadcast(self.weights[name].data, src=self.plan[name])

    def lookup(self, ids):
        return torch.cat([self.weights[n][ids[:, i]] for i, n in enumerate(FEATURES)], dim=1)

    def step(self):
        for name in sorted(self.weights):
            weight = self.weights[name]
            grad, weight.grad = weight.grad, None
            dist.reduce(grad, dst=self.plan[name])
            if self.plan[name] == self.rank:
                self.state[name].mul_(0.9).addcmul_(grad, grad, value=0.1)
                weight.data.sub_(self.lr * grad / (self.state[name].sqrt() + 1e-6))


class ClickModel(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim * len(FEATURES) + 8, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, embedded, dense):
        return self.net(torch.cat([embedded, dense], dim=1)).squeeze(1)


def time_limit(seconds):
    def expire():
        time.sleep(seconds)
        os._exit(0)

    threading.Thread(target=expire, daemon=True).start()


def train(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(name)s %(message)s")
    time_limit(args.time_limit)
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size, timeout=timedelta(minutes=20))
    tables = build_tables(args.rows, args.dim)
    constraints = {"tables": FEATURES, "kernels": ["fused", "dense"]}
    plan = EmbeddingShardingPlanner(args.world_size, constraints).plan(tables)
    clicks = ClickLog(rank, args.rows)
    clicks.warm_up(2.0)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(ClickModel(args.dim))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    embeddings = ShardedEmbeddings(tables, plan, rank)
    embeddings.broadcast()
    log.info("tables in place, training")
    for step in range(args.steps):
        ids, dense, clicked = clicks.batch(args.batch_size)
        loss = nn.functional.binary_cross_entropy_with_logits(model(embeddings.lookup(ids), dense), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        embeddings.step()
        embeddings.broadcast()
        if step % 20 == 0:
            log.info("step %d loss %.4f", step, loss.item())
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--rows", type=int, default=2000)
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--time-limit", type=int, default=110)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(train, args=(args, port), nprocs=args.world_size)


if __name__ == "__main__":
    main()
