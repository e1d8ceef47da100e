import torch


class TeacherData:
    """Noisy samples from a fixed random teacher network."""

    def __init__(self, dim=48, classes=6, noise=0.6):
        gen = torch.Generator().manual_seed(2024)
        self.w1 = torch.randn(dim, 64, generator=gen) / dim ** 0.5
        self.w2 = torch.randn(64, classes, generator=gen)
        self.dim = dim
        self.noise = noise

    def sample(self, n, gen):
        x = torch.randn(n, self.dim, generator=gen)
        logits = torch.tanh(x @ self.w1) @ self.w2
        logits = logits + self.noise * torch.randn(logits.shape, generator=gen)
        return x, logits.argmax(dim=1)
