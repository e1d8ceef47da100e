import torch
from torch import nn

from sharding import ShardedBlock


class Block(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class SpeechEncoder(nn.Module):
    def __init__(self, n_mels=40, dim=64, layers=6, layerdrop=0.05, n_units=64):
        super().__init__()
        self.layerdrop = layerdrop
        self.stem = nn.Linear(n_mels, dim)
        self.layers = nn.ModuleList(ShardedBlock(Block(dim)) for _ in range(layers))
        self.head = nn.Linear(dim, n_units)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            if self.training and torch.rand(()).item() < self.layerdrop:
                continue
            x = layer(x)
        return self.head(x)
