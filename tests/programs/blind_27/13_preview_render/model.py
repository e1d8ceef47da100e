import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def sample_batch(n, length=16):
    """Points that circle the origin at different speeds: (n, length, 2)."""
    phase = torch.rand(n, 1) * 2 * math.pi
    speed = 0.1 + 0.2 * torch.rand(n, 1)
    angle = phase + speed * torch.arange(length)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


class WorldModel(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.GRUCell(2, hidden)
        self.head = nn.Linear(hidden, 2)
        self.hidden = hidden

    def loss(self, seq):
        h = seq.new_zeros(seq.shape[0], self.hidden)
        total = 0.0
        for t in range(seq.shape[1] - 1):
            h = self.rnn(seq[:, t], h)
            total = total + F.mse_loss(seq[:, t] + self.head(h), seq[:, t + 1])
        return total / (seq.shape[1] - 1)

    @torch.no_grad()
    def imagine(self, start, length):
        h = torch.zeros(1, self.hidden)
        x = start[None]
        points = [x[0]]
        for _ in range(length - 1):
            h = self.rnn(x, h)
            x = x + self.head(h)
            points.append(x[0])
        return torch.stack(points)
