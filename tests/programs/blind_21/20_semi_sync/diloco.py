"""Semi-synchronous training: local optimizer steps, then an outer step on the averaged change."""
import logging
import time

import torch
import torch.distributed as dist

log = logging.getLogger("diloco")


class OuterOptimizer:
    def __init__(self, module, lr=0.7, momentum=0.5):
        self.params = [p for p in module.parameters()]
        self.anchor = [p.detach().clone() for p in self.params]
        self.velocity = [torch.zeros_like(p) for p in self.params]
        self.lr, self.momentum = lr, momentum

    @torch.no_grad()
    def drift(self):
        return sum(float((p - a).pow(2).sum()) for p, a in zip(self.params, self.anchor)) ** 0.5

    @torch.no_grad()
    def sync(self, local_steps):
        weight = torch.tensor([float(local_steps)])
        dist.all_reduce(weight)
        flat = torch.cat([(a - p).flatten() for p, a in zip(self.params, self.anchor)])
        flat.mul_(local_steps / weight.item())
        dist.all_reduce(flat)
        offset = 0
        for p, a, v in zip(self.params, self.anchor, self.velocity):
            pseudo = flat[offset:offset + p.numel()].view_as(p)
            offset += p.numel()
            v.mul_(self.momentum).add_(pseudo)
            a.sub_(self.lr * (pseudo + self.momentum * v))
            p.copy_(a)
        return int(weight.item())


class RoundClock:
    """Rounds last a given time, so that slow and fast hosts do as many local steps as they can."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.restart()

    def restart(self):
        self.deadline = time.monotonic() + self.seconds

    def over(self):
        return time.monotonic() >= self.deadline
