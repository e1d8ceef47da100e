import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5
        y = scores.softmax(dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class ConformerBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.conv = nn.Conv1d(dim, dim, 15, padding=7, groups=dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, dim * 2), nn.SiLU(), nn.Linear(dim * 2, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        return x + self.feed_forward(self.norm2(x))


class AcousticModel(nn.Module):
    def __init__(self, num_mel=80, dim=96, heads=4, blocks=2, vocab=64):
        super().__init__()
        self.frontend = nn.Linear(num_mel, dim)
        self.blocks = nn.ModuleList([ConformerBlock(dim, heads) for _ in range(blocks)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, features):
        x = self.frontend(features)
        for block in self.blocks:
            x = block(x)
        return self.head(x).log_softmax(dim=-1)
