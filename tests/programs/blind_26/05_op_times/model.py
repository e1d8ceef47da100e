import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Sequencer(nn.Module):
    def __init__(self, features=12, width=48, depth=3, heads=4):
        super().__init__()
        self.inp = nn.Linear(features, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.out = nn.Linear(width, features)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


def waves(rank, step, batch=8, length=24, features=12):
    g = torch.Generator().manual_seed(step * 16 + rank)
    phase = torch.rand(batch, 1, features, generator=g) * 6.28
    speed = 0.1 + torch.rand(batch, 1, features, generator=g)
    t = torch.arange(length + 1).view(1, -1, 1)
    series = torch.sin(phase + speed * t)
    return series[:, :-1], series[:, 1:]
