import torch
from torch import nn


class BlockLM(nn.Module):
    def __init__(self, vocab=2000, dim=128, layers=2, block_size=128):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Parameter(torch.zeros(block_size, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        h = self.encoder(self.tokens(x) + self.positions[: x.shape[1]], mask=mask, is_causal=True)
        return self.head(h)
