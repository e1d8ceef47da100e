"""A small policy over solution templates, trained with REINFORCE on the test results."""
import torch
from torch import nn

TEMPLATES = [
    "def solve(n, k):\n    return sum(range(n + 1)) + k\n",
    "def solve(n, k):\n    return n * (n + 1) // 2 + k\n",
    "def solve(n, k):\n    return n * (n - 1) // 2 + k\n",
    "def solve(n, k):\n    t, i = k, 0\n    while i <= n:\n        t += i\n        i += 1\n    return t\n",
    "def solve(n, k):\n    t, i = k, n\n    while i != 0:\n        t += i\n        i -= 2\n    return t\n",
]


class TemplatePolicy(nn.Module):
    def __init__(self, problems, width=64):
        super().__init__()
        self.embed = nn.Embedding(problems, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, len(TEMPLATES)))

    def forward(self, problem):
        return torch.distributions.Categorical(logits=self.head(self.embed(problem)))
