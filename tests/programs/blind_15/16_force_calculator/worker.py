"""Model process: receives positions, answers with energy and forces."""
import argparse
import logging
import socket
import sys
import time

import torch
from torch import nn

from server import recv_msg, send_msg

log = logging.getLogger("rootstock.worker")


class PairPotential(nn.Module):
    def __init__(self, n_basis=16, hidden=32, cutoff=6.0):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centers", torch.linspace(0.8, cutoff, n_basis))
        self.net = nn.Sequential(nn.Linear(n_basis, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, pos):
        i, j = torch.triu_indices(len(pos), len(pos), 1)
        d = (pos[i] - pos[j]).norm(dim=1)
        mask = d < self.cutoff
        d = d[mask]
        basis = torch.exp(-4.0 * (d[:, None] - self.centers) ** 2)
        repulsion = (1.1 / d) ** 12 - (1.1 / d) ** 6
        n_neigh = torch.bincount(torch.cat([i[mask], j[mask]]), minlength=len(pos))
        return (4 * repulsion + 0.05 * self.net(basis).squeeze(1)).sum(), n_neigh


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--model", default="pair-small")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--verbose", action="store_true")
    args = p.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.DEBUG if args.verbose else logging.INFO,
                        format="%(asctime)s %(name)s %(levelname)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = PairPotential()
    conn = socket.create_connection(("127.0.0.1", args.port))
    _, init = recv_msg(conn)
    send_msg(conn, "READY", {"model": args.model, "atoms": len(init["species"])})
    n_calls = 0
    while True:
        kind, positions = recv_msg(conn)
        if kind == "EXIT":
            return
        t0 = time.perf_counter()
        pos = torch.tensor(positions, dtype=torch.float32, requires_grad=True)
        energy, neigh = model(pos)
        (grad,) = torch.autograd.grad(energy, pos)
        n_calls += 1
        log.debug("call %d: energy %.6f, max force %.5f, %.1f ms", n_calls, energy.item(),
                  grad.abs().max().item(), 1e3 * (time.perf_counter() - t0))
        log.debug("neighbour counts: %s", " ".join(str(n) for n in neigh.tolist()))
        send_msg(conn, "FORCEREADY", {"energy": energy.item(), "forces": -grad.numpy()})


if __name__ == "__main__":
    main()
