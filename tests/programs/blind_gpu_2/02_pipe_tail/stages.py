import torch
from torch import nn


class Stage(nn.Module):
    """A slice of the transformer; first/last slices also own embedding and head."""

    def __init__(self, index, count, vocab=2000, width=256, layers=2, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width) if index == 0 else None
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(layers))
        self.head = nn.Linear(width, vocab) if index == count - 1 else None

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x) if self.head is not None else x


class TokenDataset:
    """Synthetic corpus of fixed-length samples, grouped into microbatches."""

    def __init__(self, samples, seq_len, microbatch, vocab=2000, seed=0):
        self.samples, self.seq_len, self.microbatch = samples, seq_len, microbatch
        self.vocab, self.seed = vocab, seed

    def num_microbatches(self):
        return self.samples // self.microbatch

    def stream(self, epoch):
        gen = torch.Generator().manual_seed(self.seed + epoch)
        while True:
            yield torch.randint(0, self.vocab, (self.microbatch, self.seq_len), generator=gen)
