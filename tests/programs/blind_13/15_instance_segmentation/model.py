import torch
from torch import nn


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class SegNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down1, self.down2, self.mid = block(3, 12), block(12, 24), block(24, 32)
        self.up = block(32 + 24, 16)
        self.head = nn.Conv2d(16 + 12, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(nn.functional.max_pool2d(a, 2))
        c = nn.functional.interpolate(self.mid(nn.functional.max_pool2d(b, 2)), scale_factor=2)
        d = nn.functional.interpolate(self.up(torch.cat([c, b], 1)), scale_factor=2)
        return self.head(torch.cat([d, a], 1))
