"""Periodic model averaging after a warm-up (post-local SGD)."""
import torch.distributed as dist


class PeriodicModelAverager:
    def __init__(self, period, warmup_steps):
        self.period = period
        self.warmup_steps = warmup_steps
        self.step = 0

    def _average(self, tensors):
        for t in tensors:
            dist.all_reduce(t)
            t /= dist.get_world_size()

    def after_backward(self, params):
        if self.step < self.warmup_steps:
            self._average([p.grad for p in params])

    def after_step(self, params):
        averaged = False
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == self.period - 1:
            self._average([p.data for p in params])
            averaged = True
        self.step += 1
        return averaged
