"""A classifier whose head grows when a new group of classes comes in."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim: int, expand: int):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, dim * expand)
        self.down = nn.Linear(dim * expand, dim)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class GrowingNet(nn.Module):
    def __init__(self, features: int, dim: int, depth: int, classes: int, expand: int = 2):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.blocks = nn.Sequential(*(Block(dim, expand) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    @property
    def classes(self) -> int:
        return self.head.out_features

    def add_classes(self, count: int) -> None:
        """Keep the rows of the known classes, start the new ones afresh."""
        old = self.head
        self.head = nn.Linear(old.in_features, old.out_features + count)
        with torch.no_grad():
            self.head.weight[: old.out_features].copy_(old.weight)
            self.head.bias[: old.out_features].copy_(old.bias)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.stem(x))))
