import torch
import torch.nn as nn


class TubeHead(nn.Module):
    """Boxes over time from per-frame features."""

    def __init__(self, feat=48, hidden=96, frames=16):
        super().__init__()
        self.proj = nn.Linear(feat, hidden)
        self.time = nn.Parameter(torch.randn(frames, hidden) * 0.02)
        layer = nn.TransformerEncoderLayer(hidden, 4, 2 * hidden, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.bbox = nn.Linear(hidden, 4)
        self.sted = nn.Linear(hidden, 2)

    def forward(self, x):
        h = self.encoder(self.proj(x) + self.time)
        return self.bbox(h).sigmoid(), self.sted(h)


class Criterion(nn.Module):
    def forward(self, outputs, boxes, active):
        pred, sted = outputs
        l1 = (pred - boxes).abs().sum(-1)
        loss_bbox = (l1 * active).sum() / active.sum().clamp(min=1)
        loss_sted = nn.functional.binary_cross_entropy_with_logits(sted[..., 0], active)
        return 5 * loss_bbox + loss_sted


def build_model(args):
    return TubeHead(frames=args.frames), Criterion()
