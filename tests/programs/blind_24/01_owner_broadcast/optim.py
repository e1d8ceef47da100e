"""Optimizer-state sharding: every parameter has one owner that keeps its Adam
moments, steps it, and hands the new value to the others."""
import logging

import torch
import torch.distributed as dist

log = logging.getLogger("optim")


class OwnerSharding:
    """Assigns parameters to ranks."""

    def __init__(self, named_params, world_size):
        self.world_size = world_size
        self.owner = {}
        for name, _ in named_params:
            self.owner[name] = hash(name) % world_size

    def owned_by(self, rank):
        return [n for n, r in self.owner.items() if r == rank]


class ShardedAdam:
    def __init__(self, model, lr=1e-3, betas=(0.9, 0.98), eps=1e-8):
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.params = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.sharding = OwnerSharding(self.params, self.world)
        self.lr, self.betas, self.eps = lr, betas, eps
        self.t = 0
        self.state = {}
        for name, p in self.params:
            if self.sharding.owner[name] == self.rank:
                self.state[name] = (torch.zeros_like(p), torch.zeros_like(p))
        numel = sum(m.numel() for m, _ in self.state.values())
        log.info("rank %d keeps moments for %d of %d tensors (%.1fk values)",
                 self.rank, len(self.state), len(self.params), numel / 1e3)

    def zero_grad(self):
        for _, p in self.params:
            p.grad = None

    def reduce_grads(self):
        for _, p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad.div_(self.world)

    @torch.no_grad()
    def _adam(self, name, p):
        m, v = self.state[name]
        b1, b2 = self.betas
        m.mul_(b1).add_(p.grad, alpha=1 - b1)
        v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
        mhat = m / (1 - b1 ** self.t)
        vhat = v / (1 - b2 ** self.t)
        p.addcdiv_(mhat, vhat.sqrt().add_(self.eps), value=-self.lr)

    @torch.no_grad()
    def step(self):
        self.t += 1
        self.reduce_grads()
        for name, p in self.params:
            src = self.sharding.owner[name]
            if src == self.rank:
                self._adam(name, p)
            dist.broadcast(p.data, src=src)
