import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d // self.heads), -1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


class DocumentModel(nn.Module):
    def __init__(self, vocab=512, dim=64, heads=4, layers=2, labels=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(dim), "attention": Attention(dim, heads)}) for _ in range(layers))
        self.head = nn.Linear(dim, labels)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer["attention"](layer["norm"](x))
        return self.head(x.mean(1))
