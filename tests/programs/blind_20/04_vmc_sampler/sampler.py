"""Metropolis sampling of a harmonic trial wave function."""
import torch


class WalkerEnsemble:
    def __init__(self, walkers: int, particles: int, alpha: float, seed: int):
        self.gen = torch.Generator().manual_seed(seed)
        self.r = torch.randn(walkers, particles, 3, generator=self.gen, dtype=torch.float64)
        self.alpha = alpha

    def log_psi(self, r: torch.Tensor) -> torch.Tensor:
        one_body = -self.alpha * (r ** 2).sum(dim=(1, 2))
        diff = r[:, :, None, :] - r[:, None, :, :]
        dist = (diff ** 2).sum(-1).add(1e-9).sqrt()
        pair = 0.5 * (0.25 * dist / (1.0 + dist)).sum(dim=(1, 2))
        return one_body + pair

    def sweep(self, step: float) -> float:
        proposal = self.r + step * torch.randn(self.r.shape, generator=self.gen, dtype=self.r.dtype)
        log_ratio = 2.0 * (self.log_psi(proposal) - self.log_psi(self.r))
        accept = torch.rand(len(self.r), generator=self.gen, dtype=self.r.dtype).log() < log_ratio
        self.r[accept] = proposal[accept]
        return accept.double().mean().item()

    def local_energy(self) -> torch.Tensor:
        r2 = (self.r ** 2).sum(dim=(1, 2))
        n = self.r.shape[1]
        return 3.0 * n * self.alpha + (0.5 - 2.0 * self.alpha ** 2) * r2
