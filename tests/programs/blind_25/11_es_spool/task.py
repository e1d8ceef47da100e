import torch


class PoleTask:
    """Batch of cart-poles driven by a small linear-tanh policy."""

    HIDDEN = 16

    def __init__(self, episodes, horizon):
        self.episodes, self.horizon = episodes, horizon

    @classmethod
    def size(cls):
        return 4 * cls.HIDDEN + cls.HIDDEN

    @torch.no_grad()
    def rollout(self, theta, gen):
        w1 = theta[:4 * self.HIDDEN].view(4, self.HIDDEN)
        w2 = theta[4 * self.HIDDEN:]
        s = 0.1 * (torch.rand(self.episodes, 4, generator=gen) - 0.5)
        alive = torch.ones(self.episodes)
        total = torch.zeros(self.episodes)
        for _ in range(self.horizon):
            force = 10.0 * torch.tanh(torch.tanh(s @ w1) @ w2)
            x, v, a, w = s.unbind(1)
            sin, cos = a.sin(), a.cos()
            tmp = (force + 0.05 * w * w * sin) / 1.1
            acc = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
            s = torch.stack([x + 0.02 * v, v + 0.02 * (tmp - 0.05 * acc * cos / 1.1), a + 0.02 * w, w + 0.02 * acc], 1)
            alive = alive * ((s[:, 0].abs() < 2.4) & (s[:, 2].abs() < 0.21)).float()
            total += alive
        return total.mean().item()

    def evaluate(self, theta, seed, sigma):
        gen = torch.Generator().manual_seed(seed)
        eps = torch.randn(theta.numel(), generator=gen)
        return seed, self.rollout(theta + sigma * eps, gen), self.rollout(theta - sigma * eps, gen)
