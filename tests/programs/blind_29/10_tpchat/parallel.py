"""Tensor parallel layers."""
import torch
import torch.distributed as dist
from torch import nn


class ColumnParallelLinear(nn.Module):
    def __init__(self, weight, rank, world):
        super().__init__()
        self.weight = nn.Parameter(weight.chunk(world, dim=0)[rank].clone(), requires_grad=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, weight, rank, world, group=None):
        super().__init__()
        self.weight = nn.Parameter(weight.chunk(world, dim=1)[rank].clone(), requires_grad=False)
        self.group = group

    def forward(self, x):
        out = nn.functional.linear(x, self.weight)
        dist.all_reduce(out, group=self.group)
        return out


class ParallelMLP(nn.Module):
    def __init__(self, dim, hidden, rank, world, generator):
        super().__init__()
        up = torch.randn(hidden, dim, generator=generator) / dim ** 0.5
        down = torch.randn(dim, hidden, generator=generator) / hidden ** 0.5
        self.up = ColumnParallelLinear(up, rank, world)
        self.down = RowParallelLinear(down, rank, world)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))
