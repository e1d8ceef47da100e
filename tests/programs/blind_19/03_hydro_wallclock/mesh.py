import numpy as np
import torch
import torch.distributed as dist


class MeshBlock:
    """A strip of the periodic domain with two ghost columns on each side."""

    NG = 2

    def __init__(self, rank, nranks, nx, ny):
        self.rank, self.nranks = rank, nranks
        self.nx, self.ny = nx, ny
        self.left = (rank - 1) % nranks
        self.right = (rank + 1) % nranks
        self.rho = torch.ones(ny, nx + 2 * self.NG, dtype=torch.float64)
        self.vx = torch.zeros_like(self.rho)
        self.vy = torch.zeros_like(self.rho)

    def initialize(self, modes, seed):
        """Superposes random density modes; strips inside the dense slab carry more of them."""
        rng = np.random.default_rng(seed + self.rank)
        x = (np.arange(self.nx + 2 * self.NG) + self.rank * self.nx) / (self.nx * self.nranks)
        y = np.arange(self.ny) / self.ny
        field = np.zeros((self.ny, x.size))
        for _ in range(modes):
            kx, ky = rng.integers(1, 9, 2)
            phase = rng.uniform(0, 2 * np.pi, 2)
            field += np.outer(np.sin(2 * np.pi * ky * y + phase[0]), np.sin(2 * np.pi * kx * x + phase[1]))
        self.rho += torch.from_numpy(0.3 * field / max(modes, 1))
        self.vx += 0.7
        self.vy += torch.from_numpy(0.2 * np.cos(2 * np.pi * x))[None, :]

    def exchange_ghosts(self, q):
        g = self.NG
        send_left = q[:, g:2 * g].contiguous()
        send_right = q[:, -2 * g:-g].contiguous()
        recv_left, recv_right = torch.empty_like(send_left), torch.empty_like(send_right)
        reqs = [
            dist.isend(send_left, self.left, tag=1),
            dist.isend(send_right, self.right, tag=2),
            dist.irecv(recv_right, self.right, tag=1),
            dist.irecv(recv_left, self.left, tag=2),
        ]
        for r in reqs:
            r.wait()
        q[:, :g] = recv_left
        q[:, -g:] = recv_right

    def interior(self):
        return self.rho[:, self.NG:-self.NG]
