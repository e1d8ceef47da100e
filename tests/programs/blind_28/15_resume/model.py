"""A small draft model: predicts the next token from a short window."""
import torch
from torch import nn


class DraftModel(nn.Module):
    def __init__(self, vocabulary: int, width: int, window: int):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.mix = nn.Sequential(nn.Flatten(1), nn.Linear(window * width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.LayerNorm(width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens)))


class TokenStream:
    """Endless batches of windows over a noisy arithmetic sequence."""

    def __init__(self, vocabulary: int, window: int, batch: int, seed: int):
        self.vocabulary, self.window, self.batch = vocabulary, window, batch
        self.generator = torch.Generator().manual_seed(seed)

    def __next__(self):
        start = torch.randint(0, self.vocabulary, (self.batch, 1), generator=self.generator)
        stride = torch.randint(1, 8, (self.batch, 1), generator=self.generator)
        tokens = (start + stride * torch.arange(self.window + 1)) % self.vocabulary
        noise = torch.rand(tokens.shape, generator=self.generator) < 0.05
        tokens = torch.where(noise, torch.randint(0, self.vocabulary, tokens.shape, generator=self.generator), tokens)
        return tokens[:, :-1], tokens[:, -1]


def build_optimizer(model, lr: float, warmup: int, total: int):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [torch.optim.lr_scheduler.LinearLR(optimizer, 0.02, 1.0, warmup), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - warmup)],
        [warmup],
    )
    return optimizer, scheduler
