"""Click model: sharded embedding tables and a dense over-arch."""
import torch
import torch.distributed as dist
from torch import nn


class ShardedTables(nn.Module):
    """Every rank keeps a replica; the owner applies updates and publishes them."""

    def __init__(self, configs, placements, rank):
        super().__init__()
        self.order = [c.name for c in configs if c.name in placements]
        self.placements = placements
        self.rank = rank
        self.tables = nn.ModuleDict({c.name: nn.Embedding(c.rows, c.dim)
                                     for c in configs if c.name in placements})

    def forward(self, ids):
        return torch.cat([self.tables[name](ids[:, i]) for i, name in enumerate(self.order)], 1)

    def step(self, lr):
        for name in self.order:
            weight = self.tables[name].weight
            dist.all_reduce(weight.grad)
            if self.placements[name].owner == self.rank:
                with torch.no_grad():
                    weight.add_(weight.grad, alpha=-lr / dist.get_world_size())
            weight.grad = None

    def publish(self):
        for name in self.order:
            dist.broadcast(self.tables[name].weight.data, src=self.placements[name].owner)


class ClickModel(nn.Module):
    def __init__(self, tables, dim):
        super().__init__()
        self.tables = tables
        self.over = nn.Sequential(nn.Linear(dim * len(tables.order), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, ids):
        return self.over(self.tables(ids)).squeeze(1)
