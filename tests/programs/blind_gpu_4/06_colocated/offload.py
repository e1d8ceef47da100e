"""Keeps optimizer state on the host between steps so that the sampler can use the card's memory."""
import torch


class CPUOffloadOptimizer:
    def __init__(self, optimizer, device, pin_memory=True):
        self.optimizer = optimizer
        self.device = device
        self.pin_memory = pin_memory and device.type == "cuda"
        self.on_host = False

    def _move(self, target):
        for state in self.optimizer.state.values():
            for key, value in state.items():
                if not torch.is_tensor(value) or value.dim() == 0:
                    continue
                if target.type == "cpu":
                    host = value.to(target, non_blocking=not self.pin_memory, copy=True)
                    if self.pin_memory:
                        host = host.pin_memory()
                    state[key] = host
                else:
                    state[key] = value.to(target, non_blocking=True, copy=True)

    def step(self):
        if self.on_host:
            self._move(self.device)
            self.on_host = False
        self.optimizer.step()
        self._move(torch.device("cpu"))
        self.on_host = True

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=True)
