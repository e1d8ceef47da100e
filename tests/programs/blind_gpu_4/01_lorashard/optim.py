"""Learning-rate free Adam (Prodigy), usable with sharded parameters."""
import math

import torch
import torch.distributed as dist


class Prodigy(torch.optim.Optimizer):
    def __init__(self, params, lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0,
                 d0=1e-6, d_coef=1.0, growth_rate=float("inf")):
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, d=d0, d0=d0,
                        d_max=d0, d_numerator=0.0, d_coef=d_coef, k=0, growth_rate=growth_rate)
        super().__init__(params, defaults)
        self.distributed = dist.is_initialized() and dist.get_world_size() > 1

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[0]
        beta1, beta2 = group["betas"]
        beta3 = math.sqrt(beta2)
        k, d, d0, lr = group["k"], group["d"], group["d0"], group["lr"]
        dlr = d * lr
        d_numerator = group["d_numerator"] * beta3
        d_denom = 0.0
        device = None

        for p in group["params"]:
            if p.grad is None:
                continue
            device = p.device
            state = self.state[p]
            if not state:
                state["s"] = torch.zeros_like(p)
                state["p0"] = p.detach().clone()
                state["exp_avg"] = torch.zeros_like(p)
                state["exp_avg_sq"] = torch.zeros_like(p)
            grad = p.grad
            d_numerator += (d / d0) * dlr * torch.dot(grad, state["p0"] - p).item()
            state["exp_avg"].mul_(beta1).add_(grad, alpha=d * (1 - beta1))
            state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=d * d * (1 - beta2))
            state["s"].mul_(beta3).add_(grad, alpha=(d / d0) * dlr)
            d_denom += state["s"].abs().sum().item()

        # no progress has been made yet
        if d_denom == 0:
            return None

        if self.distributed:
            totals = torch.tensor([d_numerator, d_denom], device=device)
            dist.all_reduce(totals, op=dist.ReduceOp.SUM)
            d_numerator, d_denom = totals.tolist()

        d_hat = group["d_coef"] * d_numerator / d_denom
        if d == d0:
            d = max(d, d_hat)
        d_max = max(group["d_max"], d_hat)
        d = min(d_max, d * group["growth_rate"])
        group.update(d_numerator=d_numerator, d=d, d_max=d_max, k=k + 1)

        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            denom = state["exp_avg_sq"].sqrt().add_(d * group["eps"])
            if group["weight_decay"]:
                p.mul_(1 - group["weight_decay"] * dlr)
            p.addcdiv_(state["exp_avg"], denom, value=-dlr)
        return None
