import torch.nn as nn


class Tagger(nn.Module):
    def __init__(self, channels, tasks, width=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(channels, width, 5, padding=2), nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2), nn.ReLU(),
        )
        self.head = nn.Linear(width, tasks)

    def forward(self, x):
        return self.head(self.conv(x).mean(2))
