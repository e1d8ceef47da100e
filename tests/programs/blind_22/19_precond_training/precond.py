"""Whitening preconditioner: covariances of layer inputs, factorised on the first rank."""
import logging
import time

import torch
import torch.distributed as dist

log = logging.getLogger("precond")


class InputWhitener:
    def __init__(self, model, dims, damping=1e-2):
        self.layers = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
        self.sums = [torch.zeros(d, d, dtype=torch.float64) for d in dims]
        self.inverse = [torch.eye(d) for d in dims]
        self.count = 0
        self.damping = damping
        self.collecting = False
        for index, layer in enumerate(self.layers):
            layer.register_forward_pre_hook(self._hook(index))

    def _hook(self, index):
        def collect(module, inputs):
            if self.collecting:
                x = inputs[0].detach().double()
                self.sums[index] += x.t() @ x
                if index == 0:
                    self.count += len(x)
        return collect

    def refresh(self):
        """All ranks take part in the sums, rank 0 factorises, everybody gets the result."""
        started = time.time()
        count = torch.tensor(float(self.count), dtype=torch.float64)
        dist.all_reduce(count)
        for total in self.sums:
            dist.all_reduce(total)
        if dist.get_rank() == 0:
            for inverse, total in zip(self.inverse, self.sums):
                inverse.copy_(self.factorise(total / count))
        for inverse, total in zip(self.inverse, self.sums):
            dist.broadcast(inverse, src=0)
            total.zero_()
        self.count = 0
        if dist.get_rank() == 0:
            log.info("factors refreshed in %.1f s", time.time() - started)

    def factorise(self, cov):
        cov.diagonal().add_(self.damping)
        values, vectors = torch.linalg.eigh(cov)
        return vectors @ torch.diag(values.clamp_min(self.damping).rsqrt()) @ vectors.t()

    @torch.no_grad()
    def apply(self):
        for layer, inv in zip(self.layers, self.inverse):
            layer.weight.grad.copy_(layer.weight.grad @ inv)
