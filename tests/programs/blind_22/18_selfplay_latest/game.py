"""Nim with three heaps, and a value network for it."""
import numpy as np
import torch
from torch import nn

START = (7, 6, 5)


class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())

    def forward(self, x):
        return self.net(x).squeeze(-1)


def encode(heaps):
    x = np.zeros((3, 8), dtype=np.float32)
    x[np.arange(3), list(heaps)] = 1.0
    return x.reshape(-1)


def moves(heaps):
    return [tuple(h - t if k == i else h for k, h in enumerate(heaps))
            for i, heap in enumerate(heaps) for t in range(1, heap + 1)]


@torch.no_grad()
def play(net, rng, epsilon):
    """One game; returns the positions and, for each, the result for the player to move."""
    heaps, positions = START, []
    while any(heaps):
        positions.append(encode(heaps))
        options = moves(heaps)
        if rng.random() < epsilon:
            heaps = options[rng.integers(len(options))]
        else:
            values = net(torch.from_numpy(np.stack([encode(o) for o in options])))
            heaps = options[int(values.argmin())]
    results = [1.0 if (len(positions) - i) % 2 == 1 else -1.0 for i in range(len(positions))]
    return np.stack(positions), np.array(results, dtype=np.float32)
