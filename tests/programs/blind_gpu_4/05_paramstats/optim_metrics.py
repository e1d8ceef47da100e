"""Clipping and the per-parameter numbers that go to the training dashboard."""
import collections

import torch


class OptimMetrics:
    def __init__(self, model, optimizer, max_norm, window=50):
        self.model, self.optimizer, self.max_norm = model, optimizer, max_norm
        self.window = window
        self.history = collections.defaultdict(lambda: collections.deque(maxlen=window))

    def _tensors(self, p):
        state = self.optimizer.state.get(p, {})
        yield "param", p.detach()
        if p.grad is not None:
            yield "grad", p.grad
        for key in ("exp_avg", "exp_avg_sq"):
            if key in state:
                yield key, state[key]

    @torch.no_grad()
    def clip_and_collect(self):
        total = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        metrics = {"total_grad_norm": total.item()}
        for name, p in self.model.named_parameters():
            for prefix, tensor in self._tensors(p):
                metrics[f"{prefix}/{name}.min"] = tensor.abs().min().item()
                metrics[f"{prefix}/{name}.max"] = tensor.abs().max().item()
                metrics[f"{prefix}/{name}.avg"] = tensor.mean().item()
                metrics[f"{prefix}/{name}.norm"] = tensor.norm().item()
        for key, value in metrics.items():
            self.history[key].append(value)
        return metrics

    def summary(self):
        norms = {k: sum(v) / len(v) for k, v in self.history.items() if k.startswith("grad/") and k.endswith(".norm")}
        top = sorted(norms, key=norms.get, reverse=True)[:2]
        return ", ".join(f"{k[5:-5]} {norms[k]:.3f}" for k in top)
