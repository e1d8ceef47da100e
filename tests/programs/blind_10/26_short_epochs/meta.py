import logging
import time

import torch
from torch import nn

log = logging.getLogger("meta")


class ProtoNet(nn.Module):
    def __init__(self, dim=256, out=32):
        super().__init__()
        self.project = nn.Linear(dim, out)

    def loss(self, support, query):
        centre = self.project(support).mean(2)
        distance = torch.cdist(self.project(query), centre)
        target = torch.arange(support.shape[1]).expand(len(support), -1)
        return nn.functional.cross_entropy(-distance.transpose(1, 2), target)


class MetaTrainer:
    def __init__(self, lr=1e-3):
        self.net = ProtoNet()
        self.optim = torch.optim.Adam(self.net.parameters(), lr=lr)

    def epoch(self, loader):
        started, steps = time.monotonic(), 0
        for support, query in loader:
            loss = self.net.loss(support, query)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            steps += 1
        seconds = time.monotonic() - started
        return loss.item(), steps / seconds
