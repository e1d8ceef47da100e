import torch


class PatchStream:
    """Whitened patches from synthetic scenes; every part of the cluster has its own camera."""

    def __init__(self, patch, batch_size, seed, part, parts):
        self.patch = patch
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed * 1000 + part)
        self.angle = 3.1416 * part / parts
        axis = torch.arange(patch, dtype=torch.float32) - patch / 2
        self.yy, self.xx = torch.meshgrid(axis, axis, indexing="ij")

    def _rand(self, low, high):
        return low + (high - low) * torch.rand(self.batch_size, 1, 1, generator=self.generator)

    def next(self):
        theta = self.angle + self._rand(-0.6, 0.6)
        freq = self._rand(0.3, 1.4)
        phase = self._rand(0.0, 6.28)
        wave = torch.cos(freq * (self.xx * torch.cos(theta) + self.yy * torch.sin(theta)) + phase)
        noise = 0.2 * torch.randn(self.batch_size, self.patch, self.patch, generator=self.generator)
        x = (wave + noise).flatten(1)
        return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
