"""Gaussian likelihood of catalogue functions with their parameters fitted."""
import torch


class ShapeLikelihood:
    def __init__(self, x, y, yerr):
        self.x, self.y, self.yerr = x, y, yerr

    def negloglike(self, equation, params):
        env = {"x": self.x, "a0": params[0], "a1": params[1], "exp": torch.exp, "log": torch.log,
               "sqrt": torch.sqrt, "square": torch.square, "inv": torch.reciprocal}
        pred = eval(equation.replace("pow", "**"), {"__builtins__": {}}, env)
        return 0.5 * (((pred - self.y) / self.yerr) ** 2).sum()

    def fit(self, equation, steps=40):
        params = torch.tensor([0.5, 1.5], requires_grad=True)
        opt = torch.optim.Adam([params], lr=0.05)
        best = float("inf")
        for _ in range(steps):
            opt.zero_grad()
            loss = self.negloglike(equation, params)
            if not loss.requires_grad or not torch.isfinite(loss):
                return float(loss) if torch.isfinite(loss) else best
            loss.backward()
            opt.step()
            best = min(best, float(loss))
        return best
