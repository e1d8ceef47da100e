import torch


class MomentumSgd:
    """Plain SGD with momentum."""

    def __init__(self, params, lr, momentum=0.9):
        self.params = list(params)
        self.lr, self.momentum = lr, momentum
        self.buf = [torch.zeros_like(p) for p in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, b in zip(self.params, self.buf):
            if p.grad is not None:
                b.mul_(self.momentum).add_(p.grad)
                p.add_(b, alpha=-self.lr)
