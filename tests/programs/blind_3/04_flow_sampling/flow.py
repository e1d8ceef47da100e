import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim // 2, hidden), nn.SiLU(), nn.Linear(hidden, hidden),
                                 nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        s, t = self.net(a).chunk(2, dim=-1)
        return torch.cat([b * torch.exp(torch.tanh(s)) + t, a], dim=-1)


class Flow(nn.Module):
    def __init__(self, dim=64, hidden=384, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(dim, hidden) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
