import torch
from torch import nn


class GatedBlock(nn.Module):
    def __init__(self, dim, kernel):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, 2 * dim)
        self.conv = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        a, g = self.gate(self.norm(x)).chunk(2, dim=-1)
        h = self.conv((a * torch.sigmoid(g)).transpose(1, 2)).transpose(1, 2)
        return x + self.out(nn.functional.silu(h))


class AcousticNet(nn.Module):
    def __init__(self, mel=80, dim=160, blocks=4, states=200):
        super().__init__()
        self.inp = nn.Linear(mel, dim)
        self.blocks = nn.ModuleList([GatedBlock(dim, 3 + 2 * (i % 4)) for i in range(blocks)])
        self.out = nn.Linear(dim, states)

    def forward(self, features):
        x = self.inp(torch.log1p(features.abs()) * features.sign())
        for block in self.blocks:
            x = block(x)
        return self.out(x)
