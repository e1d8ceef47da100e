import torch
from torch import nn


class Potential(nn.Module):
    """Message passing on a dense weighted adjacency."""

    def __init__(self, dim=128, layers=3, species=8):
        super().__init__()
        self.embed = nn.Embedding(species, dim)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim)) for _ in range(layers))
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, species, adjacency):
        h = self.embed(species)
        for layer in self.layers:
            h = h + layer(torch.cat([h, adjacency @ h], -1))
        return self.readout(h).mean(1).squeeze(-1)
