"""Exponential moving average of the weights, sharded over the ranks."""
import os

import torch
import torch.distributed as dist


class ShardedEMA:
    """Every rank keeps only its slice of the averaged flat parameter vector."""

    def __init__(self, model, decay=0.98):
        self.model = model
        self.decay = decay
        self.world = dist.get_world_size()
        self.rank = dist.get_rank()
        flat = self._flat()
        self.numel = flat.numel()
        self.per_rank = (self.numel + self.world - 1) // self.world
        self.shard = self._slice(flat).clone()

    def _flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def _slice(self, flat):
        padded = torch.zeros(self.per_rank * self.world)
        padded[:self.numel] = flat
        return padded[self.rank * self.per_rank:(self.rank + 1) * self.per_rank]

    def update(self):
        self.shard.mul_(self.decay).add_(self._slice(self._flat()), alpha=1 - self.decay)

    def full(self):
        parts = [torch.empty_like(self.shard) for _ in range(self.world)]
        dist.all_gather(parts, self.shard)
        return torch.cat(parts)[:self.numel]


def save_best(ema, path, epoch, value):
    weights = ema.full()
    if dist.get_rank() == 0:
        tmp = path + ".tmp"
        torch.save({"epoch": epoch, "val_loss": value, "ema": weights}, tmp)
        os.replace(tmp, path)
