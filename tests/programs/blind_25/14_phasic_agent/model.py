import torch
import torch.nn as nn


class PhasicNet(nn.Module):
    """Policy with an auxiliary value head, and a separate value network."""

    def __init__(self, size, width):
        super().__init__()

        def trunk():
            return nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU(),
                                 nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Flatten(),
                                 nn.Linear(width * ((size + 1) // 2) ** 2, 64), nn.ReLU())

        self.pi_trunk, self.v_trunk = trunk(), trunk()
        self.pi, self.aux, self.v = nn.Linear(64, 4), nn.Linear(64, 1), nn.Linear(64, 1)

    def policy(self, obs):
        return self.pi(self.pi_trunk(obs))

    def value(self, obs):
        return self.v(self.v_trunk(obs)).squeeze(-1)

    def both(self, obs):
        h = self.pi_trunk(obs)
        return self.pi(h), self.aux(h).squeeze(-1)
