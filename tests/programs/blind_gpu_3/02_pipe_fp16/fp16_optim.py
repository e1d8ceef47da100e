"""fp16 parameters with fp32 master weights, dynamic loss scale and global grad clipping."""
import torch
import torch.distributed as dist


class DynamicGradScaler:
    def __init__(self, initial_scale, growth_interval, growth_factor=2.0, backoff_factor=0.5):
        self.scale = float(initial_scale)
        self.growth_interval = growth_interval
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self._good_steps = 0

    def update(self, overflow):
        if overflow:
            self.scale *= self.backoff_factor
            self._good_steps = 0
            return
        self._good_steps += 1
        if self._good_steps == self.growth_interval:
            self.scale *= self.growth_factor
            self._good_steps = 0


class FP16Optimizer:
    def __init__(self, module, lr, scaler, max_norm, group=None):
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.masters = [p.detach().float().clone() for p in self.params]
        self.optimizer = torch.optim.AdamW(self.masters, lr=lr)
        self.scaler = scaler
        self.max_norm = max_norm
        self.group = group

    def scale_loss(self, loss):
        return loss * self.scaler.scale

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def _found_overflow(self):
        bad = torch.stack([(~torch.isfinite(p.grad)).any() for p in self.params])
        return bool(bad.any().item())

    def _unscale(self, scale):
        for p, m in zip(self.params, self.masters):
            m.grad = p.grad.float() / scale

    def clip_grad_norm(self):
        total = torch.stack([m.grad.pow(2).sum() for m in self.masters]).sum().reshape(1)
        dist.all_reduce(total, group=self.group)
        norm = total.sqrt().item()
        coef = self.max_norm / (norm + 1e-6)
        if coef < 1.0:
            for m in self.masters:
                m.grad.mul_(coef)
        return norm

    def step(self):
        scale = self.scaler.scale
        overflow = self._found_overflow()
        self.scaler.update(overflow)
        if overflow:
            self.zero_grad()
            return False, None
        self._unscale(scale)
        grad_norm = self.clip_grad_norm()
        self.optimizer.step()
        with torch.no_grad():
            for p, m in zip(self.params, self.masters):
                p.copy_(m)
        return True, grad_norm
