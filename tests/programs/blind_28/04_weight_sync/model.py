import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, obs_dim=32, width=448, actions=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, actions)

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.head(self.body(obs)))
