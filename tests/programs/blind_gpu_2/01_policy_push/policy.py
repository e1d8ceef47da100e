import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class PolicyNet(nn.Module):
    """Actor-critic head on top of a small residual MLP."""

    def __init__(self, obs_dim=64, width=256, depth=6, n_actions=12):
        super().__init__()
        self.encoder = nn.Linear(obs_dim, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.pi = nn.Linear(width, n_actions)
        self.value = nn.Linear(width, 1)

    def forward(self, obs):
        x = self.encoder(obs)
        for block in self.blocks:
            x = block(x)
        return self.pi(x), self.value(x).squeeze(-1)
