"""Small text encoder: hashed word pieces, two transformer layers, mean pooling."""
import zlib

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab=8192, dim=256, layers=2, max_len=64):
        super().__init__()
        self.vocab, self.max_len = vocab, max_len
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.position = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def tokenize(self, texts):
        out = torch.zeros(len(texts), self.max_len, dtype=torch.long)
        for row, text in enumerate(texts):
            ids = [1 + zlib.crc32(w.encode()) % (self.vocab - 1) for w in text.split()[:self.max_len]]
            out[row, :len(ids)] = torch.tensor(ids or [1])
        return out

    def forward(self, ids):
        mask = ids == 0
        h = self.body(self.embed(ids) + self.position, src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).to(h.dtype)
        pooled = (h * keep).sum(1) / keep.sum(1)
        return nn.functional.normalize(pooled, dim=-1)
