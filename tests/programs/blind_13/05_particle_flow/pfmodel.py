import torch
from torch import nn


class MLPF(nn.Module):
    """Classifies and regresses every element of an event."""

    def __init__(self, features=17, width=96, classes=6):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(features, width), nn.ELU(), nn.Linear(width, width))
        self.norm0 = nn.BatchNorm1d(width)
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm1 = nn.BatchNorm1d(width)
        self.nn_id = nn.Linear(width, classes)
        self.nn_p4 = nn.Linear(width, 4)

    def forward(self, x):
        h = self.norm0(self.embed(x).transpose(1, 2)).transpose(1, 2)
        h = h + self.attn(h, h, h, need_weights=False)[0]
        h = self.norm1(h.transpose(1, 2)).transpose(1, 2)
        return self.nn_id(h), self.nn_p4(h)


def mlpf_loss(pred, target):
    pred_id, pred_p4 = pred
    target_id, target_p4 = target
    return {
        "Classification": nn.functional.cross_entropy(pred_id.flatten(0, 1), target_id.flatten()),
        "Regression": nn.functional.smooth_l1_loss(pred_p4, target_p4),
    }


class EventLoader:
    def __init__(self, batch_size, seed, elements=128):
        self.batch_size, self.elements = batch_size, elements
        self.gen = torch.Generator().manual_seed(seed)

    def __next__(self):
        x = torch.randn(self.batch_size, self.elements, 17, generator=self.gen)
        return x, (x[..., :6].argmax(-1), x[..., 6:10])
