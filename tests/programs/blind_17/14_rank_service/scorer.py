"""Ranking model behind the scoring service."""
import torch
from torch import nn


class RankNet(nn.Module):
    def __init__(self, n_features=32, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_features, hidden), nn.ReLU(),
                                 nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Scorer:
    def __init__(self, n_features=32):
        torch.manual_seed(3)
        self.n_features = n_features
        self.model = RankNet(n_features).eval()

    @torch.inference_mode()
    def score(self, rows):
        x = torch.tensor(rows, dtype=torch.float32)
        if x.ndim != 2 or x.shape[1] != self.n_features:
            raise ValueError(f"expected rows of {self.n_features} features, got {tuple(x.shape)}")
        return torch.sigmoid(self.model(x)).tolist()
