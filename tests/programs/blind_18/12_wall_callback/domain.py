"""Row-decomposed domain for the advection/diffusion dycore."""
import numpy as np
import torch
import torch.distributed as dist


class Slab:
    def __init__(self, rank, size, nx=384, ny=384, seed=7):
        self.rank, self.size = rank, size
        self.rows = ny // size
        self.q = torch.zeros(self.rows + 2, nx)
        self.below = rank - 1 if rank > 0 else None
        self.above = rank + 1 if rank < size - 1 else None
        self.orography = self._orography(nx, seed)
        y = torch.arange(self.rows).float() + rank * self.rows
        x = torch.arange(nx).float()
        self.q[1:-1] = torch.exp(-((y[:, None] - ny / 2) ** 2 + (x[None] - nx / 2) ** 2) / 900.0)

    def _orography(self, nx, seed):
        """Mountains only exist in the middle of the domain; smooth them until flat enough."""
        h = np.zeros((self.rows, nx))
        if self.rank == self.size // 2:
            rng = np.random.default_rng(seed)
            h = rng.random((self.rows, nx)) * 800.0
            for _ in range(6000):
                h[1:-1, 1:-1] = 0.25 * (h[:-2, 1:-1] + h[2:, 1:-1] + h[1:-1, :-2] + h[1:-1, 2:])
        return torch.from_numpy(h).float()

    def exchange_halo(self):
        reqs = []
        if self.below is not None:
            reqs.append(dist.isend(self.q[1].clone(), self.below, tag=1))
            lo = torch.empty_like(self.q[0])
            reqs.append(dist.irecv(lo, self.below, tag=2))
        if self.above is not None:
            reqs.append(dist.isend(self.q[-2].clone(), self.above, tag=2))
            hi = torch.empty_like(self.q[0])
            reqs.append(dist.irecv(hi, self.above, tag=1))
        for r in reqs:
            r.wait()
        if self.below is not None:
            self.q[0] = lo
        if self.above is not None:
            self.q[-1] = hi

    def tendency(self, nu):
        c = self.q[1:-1]
        lap = (self.q[:-2] + self.q[2:] + torch.roll(c, 1, 1) + torch.roll(c, -1, 1) - 4 * c)
        adv = c - torch.roll(c, 1, 1)
        return nu * lap - 0.1 * adv / (1.0 + 1e-3 * self.orography)

    def mass(self):
        return self.q[1:-1].sum()

    def l2(self):
        return (self.q[1:-1] ** 2).sum()
