import torch
from torch import nn
import torch.nn.functional as F


def block(cin, cout, stride=1):
    return nn.Sequential(nn.Conv3d(cin, cout, 3, stride, 1), nn.GroupNorm(4, cout), nn.SiLU())


class QuerySegNet(nn.Module):
    """Small encoder and decoder; the organ that is asked for modulates the bottleneck."""

    def __init__(self, organs, width):
        super().__init__()
        self.stem = block(1, width)
        self.down = block(width, 2 * width, stride=2)
        self.query = nn.Embedding(organs, 4 * width)
        self.mid = block(2 * width, 2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 2, 2)
        self.head = nn.Sequential(block(2 * width, width), nn.Conv3d(width, 1, 1))

    def forward(self, image, organ):
        fine = self.stem(image)
        x = self.mid(self.down(fine))
        idx = torch.full((image.shape[0],), organ, dtype=torch.long)
        scale, shift = self.query(idx)[..., None, None, None].chunk(2, dim=1)
        x = self.up(x * (1 + scale) + shift)
        return self.head(torch.cat([x, fine], dim=1)).squeeze(1)


def dice_loss(logits, target):
    prob = logits.sigmoid().flatten(1)
    target = target.float().flatten(1)
    inter = (prob * target).sum(1)
    dice = (2 * inter + 1) / (prob.sum(1) + target.sum(1) + 1)
    return 1 - dice.mean() + F.binary_cross_entropy(prob, target)


def dice_score(logits, target):
    pred = logits.flatten(1) > 0
    target = target.flatten(1)
    inter = (pred & target).sum(1)
    return (2 * inter / (pred.sum(1) + target.sum(1)).clamp(min=1)).mean()
