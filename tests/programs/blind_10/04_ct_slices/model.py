from torch import nn


class TinyUNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return self.up(self.down(x))
