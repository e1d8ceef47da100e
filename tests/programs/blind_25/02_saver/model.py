import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self, features, width, depth):
        super().__init__()
        layers, last = [], features
        for _ in range(depth):
            layers += [nn.Linear(last, width), nn.GELU()]
            last = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(last, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


class Stream:
    """Endless synthetic regression batches, a different stream on every rank."""

    def __init__(self, features, batch_size, seed):
        self.features, self.batch_size = features, batch_size
        self.gen = torch.Generator().manual_seed(seed)
        self.truth = torch.randn(features, generator=torch.Generator().manual_seed(0))

    def __iter__(self):
        while True:
            x = torch.randn(self.batch_size, self.features, generator=self.gen)
            yield x, torch.tanh(x @ self.truth / self.features ** 0.5)
