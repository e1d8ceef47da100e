"""Gaussian process surrogate with a squared exponential kernel."""
import math

import torch


class GaussianProcess:
    def __init__(self, dim, noise=1e-3):
        self.noise = noise
        self.log_scale = torch.zeros(dim)
        self.log_amp = torch.zeros(())
        self.x = torch.empty(0, dim)
        self.y = torch.empty(0)

    def add(self, x, y):
        self.x = torch.cat([self.x, x])
        self.y = torch.cat([self.y, y])

    def kernel(self, a, b, log_scale, log_amp):
        d = (a.unsqueeze(1) - b.unsqueeze(0)) / log_scale.exp()
        return log_amp.exp() * torch.exp(-0.5 * d.pow(2).sum(-1))

    def nll(self, log_scale, log_amp):
        n = len(self.x)
        k = self.kernel(self.x, self.x, log_scale, log_amp) + self.noise * torch.eye(n)
        chol = torch.linalg.cholesky(k)
        alpha = torch.cholesky_solve(self.y.unsqueeze(1), chol).squeeze(1)
        return 0.5 * self.y @ alpha + chol.diagonal().log().sum() + 0.5 * n * math.log(2 * math.pi)

    def predict(self, q):
        n = len(self.x)
        k = self.kernel(self.x, self.x, self.log_scale, self.log_amp) + self.noise * torch.eye(n)
        ks = self.kernel(q, self.x, self.log_scale, self.log_amp)
        chol = torch.linalg.cholesky(k)
        mean = ks @ torch.cholesky_solve(self.y.unsqueeze(1), chol).squeeze(1)
        v = torch.linalg.solve_triangular(chol, ks.T, upper=False)
        var = self.log_amp.exp() - v.pow(2).sum(0)
        return mean, var.clamp_min(1e-9)
