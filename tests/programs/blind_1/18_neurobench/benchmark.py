"""Static and workload metrics of a model during its training."""
import torch
from torch import nn


class ActivationHook:
    def __init__(self, layer):
        self.outputs = []
        self.handle = layer.register_forward_hook(self._keep)

    def _keep(self, module, inp, out):
        self.outputs.append(out.detach().clone())

    def sparsity(self):
        tot = sum(o.numel() for o in self.outputs)
        return sum((o == 0).sum().item() for o in self.outputs) / max(tot, 1)


class Benchmark:
    def __init__(self, model, data):
        self.model, self.data = model, data
        self.hooks = [ActivationHook(m) for m in model.modules() if isinstance(m, nn.ReLU)]

    @torch.no_grad()
    def run(self):
        correct = n = 0
        for x, y in self.data:
            correct += (self.model(x).argmax(1) == y).sum().item()
            n += len(y)
        return {"accuracy": correct / n, "activation_sparsity": sum(h.sparsity() for h in self.hooks) / len(self.hooks)}
