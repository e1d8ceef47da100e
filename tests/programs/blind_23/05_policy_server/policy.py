import torch
from torch import nn


class ActionChunkPolicy(nn.Module):
    def __init__(self, state_dim, image, horizon, width=64):
        super().__init__()
        self.vision = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2, 2), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU(),
            nn.Conv2d(32, 32, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(32 * (image // 8) ** 2, width))
        self.state = nn.Linear(state_dim, width)
        self.head = nn.Sequential(nn.GELU(), nn.Linear(2 * width, 256), nn.GELU(),
                                  nn.Linear(256, horizon * state_dim))
        self.shape = (horizon, state_dim)

    def forward(self, image, state):
        x = torch.cat([self.vision(image), self.state(state)], dim=-1)
        return self.head(x).unflatten(-1, self.shape)
