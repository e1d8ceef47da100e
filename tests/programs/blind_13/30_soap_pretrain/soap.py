"""Adam in the eigenbasis of Shampoo's preconditioner."""
import torch


class SOAP(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.95, 0.95), shampoo_beta=0.95, eps=1e-8, precondition_frequency=10):
        super().__init__(params, dict(lr=lr, betas=betas, shampoo_beta=shampoo_beta, eps=eps,
                                      precondition_frequency=precondition_frequency))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                    if p.dim() == 2:
                        state["gg"] = [torch.zeros(d, d) for d in p.shape]
                        state["q"] = [torch.eye(d) for d in p.shape]
                state["step"] += 1
                grad = p.grad
                if p.dim() == 2:
                    self.update_preconditioner(group, state, grad)
                    grad = self.project(grad, state)
                state["m"].lerp_(grad, 1 - b1)
                state["v"].lerp_(grad.square(), 1 - b2)
                update = state["m"] / (state["v"].sqrt() + group["eps"])
                if p.dim() == 2:
                    update = state["q"][0] @ update @ state["q"][1].T
                p.add_(update, alpha=-group["lr"])

    def project(self, grad, state):
        return state["q"][0].T @ grad @ state["q"][1]

    def update_preconditioner(self, group, state, grad):
        beta = group["shampoo_beta"]
        state["gg"][0].lerp_(grad @ grad.T, 1 - beta)
        state["gg"][1].lerp_(grad.T @ grad, 1 - beta)
        if state["step"] % group["precondition_frequency"] == 1:
            for k in range(2):
                matrix = state["gg"][k].double()
                matrix.diagonal().add_(1e-12)
                state["q"][k] = torch.linalg.eigh(matrix)[1].flip(1).float()
