import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1 = nn.LayerNorm(dim)
        self.n2 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, bounds):
        h = self.qkv(self.n1(x))
        parts = []
        for a, b in bounds:
            q, k, v = h[a:b].view(b - a, 3, self.heads, -1).permute(1, 2, 0, 3)[:, None]
            att = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            parts.append(att[0].permute(1, 0, 2).reshape(b - a, -1))
        x = x + self.out(torch.cat(parts))
        return x + self.ff(self.n2(x))


class DraftModel(nn.Module):
    def __init__(self, vocab=512, dim=64, heads=4, depth=3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens, bounds):
        x = self.emb(tokens)
        for blk in self.blocks:
            x = blk(x, bounds)
        logits = self.head(x)
        return F.cross_entropy(logits[:-1], tokens[1:])
