import torch
import torch.distributed as dist
from torch import nn


class ColumnRowMLP(nn.Module):
    """Column-parallel up projection, row-parallel down projection."""

    def __init__(self, width, world):
        super().__init__()
        self.up = nn.Linear(width, 4 * width // world)
        self.down = nn.Linear(4 * width // world, width, bias=False)

    def forward(self, x):
        y = self.down(torch.nn.functional.silu(self.up(x)))
        dist.all_reduce(y)
        return x + y


class TensorParallelLM(nn.Module):
    def __init__(self, world, vocab=16000, width=512, layers=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(ColumnRowMLP(width, world) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        x = x.cumsum(1) / torch.arange(1, ids.shape[1] + 1, device=ids.device).view(1, -1, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1]))
