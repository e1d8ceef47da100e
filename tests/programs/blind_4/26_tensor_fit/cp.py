import torch
from torch import nn


class CPTensor(nn.Module):
    """Rank-R canonical decomposition of a 3-way tensor."""

    def __init__(self, shape, rank):
        super().__init__()
        self.factors = nn.ParameterList([nn.Parameter(torch.randn(n, rank) * 0.1) for n in shape])

    def at(self, idx):
        rows = [f[idx[:, k]] for k, f in enumerate(self.factors)]
        return (rows[0] * rows[1] * rows[2]).sum(1)


class Optimizer:
    def __init__(self, tensor, lr, tol=1e-9):
        self.tensor = tensor
        self.opt = torch.optim.Adam(tensor.parameters(), lr=lr)
        self.tol = tol
        self.loss_history, self.test_history = [], []

    def converged(self):
        h = self.test_history
        return len(h) > 5000 and abs(h[-1] - h[-5000]) < self.tol

    def step(self, idx, values, test_idx, test_values):
        loss = (self.tensor.at(idx) - values).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.loss_history.append(loss.item())
        self.test_history.append((self.tensor.at(test_idx) - test_values).pow(2).mean())
