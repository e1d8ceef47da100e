"""Keeps the Adam optimizer in step with a changing set of gaussians."""
import torch
from torch import nn


class OptimizerManager:
    LR = {"means": 1e-4, "scales": 5e-3, "opacity": 2e-2, "features": 5e-3}

    def __init__(self, gaussians):
        self.gaussians = gaussians
        self.names = list(gaussians.params)
        self.optimizer = torch.optim.Adam(
            [{"params": [gaussians.params[n]], "lr": self.LR[n], "name": n} for n in self.names], eps=1e-15)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _swap(self, index, new_value, map_moment):
        group = self.optimizer.param_groups[index]
        moments = self.optimizer.state[index]
        parameter = nn.Parameter(new_value)
        if "exp_avg" in moments:
            moments["exp_avg"] = map_moment(moments["exp_avg"])
            moments["exp_avg_sq"] = map_moment(moments["exp_avg_sq"])
        del self.optimizer.state[index]
        self.optimizer.state[parameter] = moments
        group["params"][0] = parameter
        self.gaussians.params[group["name"]] = parameter

    def delete(self, keep):
        for index, name in enumerate(self.names):
            self._swap(index, self.gaussians.params[name].detach()[keep], lambda m: m[keep])
        self.gaussians.grad_norm = self.gaussians.grad_norm[keep]

    def add(self, new_values):
        count = new_values["means"].shape[0]
        for index, name in enumerate(self.names):
            value = torch.cat([self.gaussians.params[name].detach(), new_values[name]])
            self._swap(index, value, lambda m: torch.cat([m, m.new_zeros(count, *m.shape[1:])]))
        self.gaussians.grad_norm = torch.cat([self.gaussians.grad_norm, torch.zeros(count)])
