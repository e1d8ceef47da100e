"""A small normalizing flow in the style of WaveGlow, for vectors instead of audio."""
import math

import torch
from torch import nn


class CouplingNet(nn.Module):
    def __init__(self, half, hidden, depth):
        super().__init__()
        self.start = nn.utils.parametrizations.weight_norm(nn.Linear(half, hidden))
        self.layers = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(nn.Linear(hidden, hidden)) for _ in range(depth))
        self.end = nn.Linear(hidden, 2 * half)
        nn.init.zeros_(self.end.weight)
        nn.init.zeros_(self.end.bias)

    def forward(self, x):
        h = torch.tanh(self.start(x))
        for layer in self.layers:
            h = h + torch.tanh(layer(h))
        log_s, t = self.end(h).chunk(2, dim=-1)
        return torch.tanh(log_s), t


class Flow(nn.Module):
    def __init__(self, channels=8, hidden=24, flows=12, depth=6):
        super().__init__()
        self.channels = channels
        self.mix = nn.ParameterList(
            nn.Parameter(torch.linalg.qr(torch.randn(channels, channels))[0]) for _ in range(flows))
        self.coupling = nn.ModuleList(CouplingNet(channels // 2, hidden, depth) for _ in range(flows))

    def forward(self, x):
        logdet = x.new_zeros(x.shape[0])
        for weight, net in zip(self.mix, self.coupling):
            x = x @ weight
            logdet = logdet + torch.linalg.slogdet(weight)[1]
            a, b = x.chunk(2, dim=-1)
            log_s, t = net(a)
            b = torch.exp(log_s) * b + t
            logdet = logdet + log_s.sum(dim=-1)
            x = torch.cat([a, b], dim=-1)
        return x, logdet


def flow_loss(z, logdet):
    log_prob = -0.5 * (z ** 2).sum(dim=-1) - 0.5 * z.shape[-1] * math.log(2 * math.pi)
    return -(log_prob + logdet).mean()
