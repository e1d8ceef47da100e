import torch
from torch import nn


class PVNet(nn.Module):
    def __init__(self, history=6, horizon=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(history, 16, 3, stride=2), nn.ELU(), nn.Conv2d(16, 24, 3, stride=2),
                                     nn.ELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(24 * 4 + 3, 64), nn.ELU(), nn.Linear(64, horizon))

    def forward(self, satellite, static):
        return self.head(torch.cat([self.encoder(satellite), static], dim=1))
