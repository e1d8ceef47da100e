"""A two tower model: code and its description, in one embedding space."""
import torch
from torch import nn
import torch.nn.functional as F


class Embeddings(nn.Module):
    def __init__(self, vocab, width, positions):
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.places = nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("position_ids", torch.arange(positions).expand((1, -1)).clone())

    def forward(self, ids):
        places = self.places(self.position_ids[:, : ids.shape[1]])
        return self.norm(self.words(ids) + places)


class Encoder(nn.Module):
    def __init__(self, vocab=2000, width=96, layers=2, positions=128):
        super().__init__()
        self.embeddings = Embeddings(vocab, width, positions)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        return F.normalize(self.layers(self.embeddings(ids)).mean(1), dim=-1)
