"""Parameters partitioned over the data-parallel ranks (stage-3 style)."""
import math

import torch
import torch.distributed as dist
from torch import nn


class _Gather(torch.autograd.Function):
    """All-gather a flat shard; the backward pass averages and keeps the local part."""

    @staticmethod
    def forward(ctx, shard, group):
        ctx.group = group
        ctx.world = dist.get_world_size(group)
        ctx.rank = dist.get_rank(group)
        parts = [torch.empty_like(shard) for _ in range(ctx.world)]
        dist.all_gather(parts, shard.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad, group=ctx.group)
        grad /= ctx.world
        return grad.chunk(ctx.world)[ctx.rank].clone(), None


class ShardedLinear(nn.Module):
    def __init__(self, n_in, n_out, group=None, seed=0):
        super().__init__()
        self.n_in, self.n_out, self.group = n_in, n_out, group
        world, rank = dist.get_world_size(group), dist.get_rank(group)
        gen = torch.Generator().manual_seed(seed)
        full = torch.randn(n_out * n_in, generator=gen) / math.sqrt(n_in)
        per_rank = math.ceil(full.numel() / world)
        padded = torch.zeros(per_rank * world)
        padded[: full.numel()] = full
        self.shard = nn.Parameter(padded.chunk(world)[rank].clone())

    def forward(self, x):
        flat = _Gather.apply(self.shard, self.group)
        weight = flat[: self.n_in * self.n_out].view(self.n_out, self.n_in)
        return x @ weight.t()
