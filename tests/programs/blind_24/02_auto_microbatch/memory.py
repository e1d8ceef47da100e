"""Activation budget. The target boards have no swap, so we bound what autograd may keep."""
import contextlib

import torch


class ActivationBudget:
    def __init__(self, limit_mb):
        self.limit = int(limit_mb * 2 ** 20)
        self.used = 0
        self.peak = 0

    def _pack(self, t):
        self.used += t.numel() * t.element_size()
        self.peak = max(self.peak, self.used)
        if self.used > self.limit:
            raise RuntimeError(f"out of memory: activations need {self.used / 2**20:.1f} MiB, "
                               f"budget is {self.limit / 2**20:.1f} MiB")
        return t

    @contextlib.contextmanager
    def track(self):
        self.used = 0
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda t: t):
            yield self


def is_oom(err):
    return isinstance(err, RuntimeError) and "out of memory" in str(err)
