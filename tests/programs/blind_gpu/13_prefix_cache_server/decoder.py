import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, past):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        k_new, v_new = k, v
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        y = scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(x), (k_new.contiguous(), v_new.contiguous())


class Decoder(nn.Module):
    def __init__(self, vocab=4096, dim=512, heads=8, layers=6):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(layers)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens, past=None):
        x, new = self.embed(tokens), []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, None if past is None else past[i])
            new.append(kv)
        return self.head(x[:, -1]), new
