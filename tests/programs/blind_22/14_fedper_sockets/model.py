"""Network with a shared body and a personal head (FedPer)."""
import torch
from torch import nn


class FedPerNet(nn.Module):
    def __init__(self, inputs=32, width=64, classes=10):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width, bias=False),
            nn.LayerNorm(width, elementwise_affine=False), nn.ReLU(),
            nn.Linear(width, width, bias=False),
            nn.LayerNorm(width, elementwise_affine=False), nn.ReLU(),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))

    def shared_parameters(self, with_head):
        params = list(self.body.parameters())
        if with_head:
            params += list(self.head.parameters())
        return params


def to_vector(params):
    return torch.cat([p.detach().reshape(-1) for p in params]).numpy()


@torch.no_grad()
def from_vector(params, vector):
    offset = 0
    for p in params:
        n = p.numel()
        p.copy_(torch.from_numpy(vector[offset:offset + n].copy()).view_as(p))
        offset += n
