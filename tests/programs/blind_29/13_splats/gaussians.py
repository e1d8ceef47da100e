"""2D gaussian image model: means, scales, opacity and colour features."""
import torch
from torch import nn


class Gaussians:
    def __init__(self, count, features, generator):
        self.params = {
            "means": nn.Parameter(torch.rand(count, 2, generator=generator)),
            "scales": nn.Parameter(torch.full((count, 2), -3.2)),
            "opacity": nn.Parameter(torch.zeros(count, 1)),
            "features": nn.Parameter(0.1 * torch.randn(count, features, generator=generator)),
        }
        self.decode = torch.randn(features, 3, generator=generator) / features ** 0.5
        self.grad_norm = torch.zeros(count)

    def __len__(self):
        return self.params["means"].shape[0]

    def render(self, points):
        means, scales = self.params["means"], self.params["scales"].exp()
        diff = (points[:, None, :] - means[None]) / scales[None]
        weight = torch.exp(-0.5 * diff.pow(2).sum(-1)) * torch.sigmoid(self.params["opacity"]).T
        colour = self.params["features"] @ self.decode
        return (weight @ colour) / (weight.sum(1, keepdim=True) + 1e-4)

    def note_gradients(self):
        self.grad_norm += self.params["means"].grad.norm(dim=1)
