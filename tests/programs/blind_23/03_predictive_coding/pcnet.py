import torch
from torch import nn
import torch.nn.functional as F


class PCLayer(nn.Module):
    """One level: predicts the level below and has lateral connections between its own units."""

    def __init__(self, below, units, infer_steps, lateral_lr, infer_lr=0.1):
        super().__init__()
        self.encode = nn.Linear(below, units)
        self.decode = nn.Linear(units, below)
        self.lateral = nn.Parameter(torch.zeros(units, units), requires_grad=False)
        self.infer_steps = infer_steps
        self.infer_lr = infer_lr
        self.lateral_lr = lateral_lr

    def infer(self, x):
        """Settle the activity of the units to a low prediction error."""
        z = torch.tanh(self.encode(x))
        for _ in range(self.infer_steps):
            error = x - self.decode(z)
            drive = F.linear(error, self.decode.weight.t())
            z = torch.tanh(z + self.infer_lr * (drive - z @ self.lateral))
        return z

    @torch.no_grad()
    def local_update(self, z):
        """Anti-Hebbian decorrelation (Foldiak): the connections follow the activity of the batch."""
        corr = z.t() @ z / z.shape[0]
        corr.fill_diagonal_(0.0)
        self.lateral.data.mul_(1 - 0.1 * self.lateral_lr).add_(corr, alpha=self.lateral_lr)

    def forward(self, x):
        z = self.infer(x)
        if self.training:
            self.local_update(z)
        energy = (x - self.decode(z)).pow(2).mean()
        return z, energy


class PCNet(nn.Module):
    def __init__(self, inputs, hidden, infer_steps, lateral_lr):
        super().__init__()
        sizes = [inputs, *hidden]
        self.layers = nn.ModuleList(
            PCLayer(a, b, infer_steps, lateral_lr) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            x, energy = layer(x)
            total = total + energy
        return total
