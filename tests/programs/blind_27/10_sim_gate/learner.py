import torch
import torch.nn as nn
import torch.nn.functional as F


class MomentumSGD:
    def __init__(self, params, lr, momentum=0.9):
        self.params = list(params)
        self.lr, self.momentum = lr, momentum
        self.velocity = [torch.zeros_like(p) for p in self.params]

    def minimize(self, loss):
        grads = torch.autograd.grad(loss, self.params)
        with torch.no_grad():
            for p, v, g in zip(self.params, self.velocity, grads):
                v.mul_(self.momentum).add_(g)
                p.sub_(self.lr * v)


class Learner:
    """Fits a forward model of the simulator to what has been collected."""

    def __init__(self, capacity=20000, lr=0.02):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))
        self.opt = MomentumSGD(self.model.parameters(), lr=lr)
        self.capacity = capacity
        self.data = torch.empty(0, 7)

    def update(self, batch, steps):
        if batch:
            self.data = torch.cat([self.data, torch.tensor(batch)])[-self.capacity:]
        total = 0.0
        for _ in range(steps):
            rows = self.data[torch.randint(len(self.data), (256,))]
            loss = F.mse_loss(self.model(rows[:, :4]), rows[:, 4:])
            self.opt.minimize(loss)
            total += loss.item()
        return total / steps
