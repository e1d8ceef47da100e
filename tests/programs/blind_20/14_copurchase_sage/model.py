import torch
from torch import nn


class AttnSage(nn.Module):
    """Neighbour messages through an edge MLP, mean aggregation, then a classifier."""

    def __init__(self, dim, hidden, classes):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.self_fc = nn.Linear(dim, hidden)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x_src, dst, x_dst):
        msg = self.edge(torch.cat([x_src, x_dst[dst]], dim=1))
        total = torch.zeros(len(x_dst), msg.shape[1]).index_add_(0, dst, msg)
        count = torch.bincount(dst, minlength=len(x_dst)).clamp(min=1).unsqueeze(1)
        return self.head(self.self_fc(x_dst) + total / count)
