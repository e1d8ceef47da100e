import torch
from torch import nn


class KeywordNet(nn.Module):
    def __init__(self, feat_dim=40, hidden=64, classes=12):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(feat_dim, hidden, 5, padding=2), nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2), nn.ReLU(),
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, feats):
        x = self.conv(feats.transpose(1, 2))
        return self.head(x.mean(dim=2))
