"""Decoder with a static key/value cache; one token for every row of the batch at a time."""
import torch
import torch.nn.functional as F
from torch import nn


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * kv_heads * self.head_dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, keys, values, pos):
        rows = x.size(0)
        h = self.norm1(x)
        q = self.q(h).view(rows, self.heads, 1, self.head_dim)
        k, v = self.kv(h).view(rows, 2, self.kv_heads, 1, self.head_dim).unbind(1)
        keys[:, :, pos:pos + 1].copy_(k)
        values[:, :, pos:pos + 1].copy_(v)
        group = self.heads // self.kv_heads
        k = keys[:, :, :pos + 1].repeat_interleave(group, dim=1)
        v = values[:, :, :pos + 1].repeat_interleave(group, dim=1)
        a = F.scaled_dot_product_attention(q, k, v).reshape(rows, -1)
        x = x + self.out(a)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ChatModel(nn.Module):
    def __init__(self, vocab=16384, dim=512, heads=8, kv_heads=4, layers=4):
        super().__init__()
        self.vocab = vocab
        self.kv_heads, self.head_dim = kv_heads, dim // heads
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, kv_heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def new_cache(self, rows, max_len, device):
        shape = (rows, self.kv_heads, max_len, self.head_dim)
        return [(torch.zeros(shape, device=device), torch.zeros(shape, device=device)) for _ in self.layers]

    def step(self, tokens, cache, pos):
        x = self.embed(tokens)
        for layer, (keys, values) in zip(self.layers, cache):
            x = layer(x, keys, values, pos)
        return self.head(self.norm(x))
