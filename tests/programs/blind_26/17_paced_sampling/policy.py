import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self, obs=16, width=192, actions=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, actions)

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.actor(self.body(obs)))


class TurnTask:
    """A task of several turns; the environment of a turn answers after some time."""

    def __init__(self, generator, long_fraction):
        self.generator = generator
        draw = torch.rand(2, generator=generator)
        self.turns = 24 if draw[0] < long_fraction else 4 + int(4 * draw[1])
        self.latency = 0.15
        self.target = torch.randn(16, 5, generator=generator)

    def observe(self, members):
        return torch.randn(members, 16, generator=self.generator)

    def reward(self, obs, action):
        return (obs @ self.target).gather(1, action.unsqueeze(1)).squeeze(1)
