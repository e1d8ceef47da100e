import torch
from torch import nn

from layers import MyBatchNorm2d


def block(n_in, n_out, stride=1):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False),
                         MyBatchNorm2d(n_out), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self, classes=3, width=12):
        super().__init__()
        self.enc1 = nn.Sequential(block(1, width), block(width, width))
        self.enc2 = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.enc3 = nn.Sequential(block(2 * width, 4 * width, 2), block(4 * width, 4 * width))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.dec2 = block(6 * width, 2 * width)
        self.dec1 = block(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(e1)
        e3 = self.enc3(e2)
        d2 = self.dec2(torch.cat([self.up(e3), e2], 1))
        d1 = self.dec1(torch.cat([self.up(d2), e1], 1))
        return self.head(d1)
