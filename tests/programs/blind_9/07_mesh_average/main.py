"""Factorised recommender on a 2x2 mesh: users along rows, items along columns."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from optim import MomentumSgd
from mesh import GossipAverager, Mesh2d

log = logging.getLogger("mf")


class Factors(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.u = nn.Parameter(0.1 * torch.randn(users, dim))
        self.v = nn.Parameter(0.1 * torch.randn(items, dim))

    def forward(self, i, j):
        return (self.u[i] * self.v[j]).sum(1)


class Ratings:
    def __init__(self, users, items, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.a = torch.randn(users, 4, generator=self.g)
        self.b = torch.randn(items, 4, generator=self.g)

    def batch(self, n):
        i = torch.randint(0, len(self.a), (n,), generator=self.g)
        j = torch.randint(0, len(self.b), (n,), generator=self.g)
        return i, j, (self.a[i] * self.b[j]).sum(1)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.rows * args.cols)
    torch.manual_seed(rank)
    mesh = Mesh2d(args.rows, args.cols)
    model = Factors(args.size, args.size, 16)
    averager = GossipAverager(mesh, {"row": model.u, "col": model.v})
    data = Ratings(args.size, args.size, args.seed + rank)
    opt = MomentumSgd(model.parameters(), lr=0.5)
    for step in range(1, args.steps + 1):
        i, j, y = data.batch(512)
        loss = nn.functional.mse_loss(model(i, j), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.02)
        if step % args.average_every == 0:
            averager.average()
            if rank == 0:
                log.info("step %d loss %.4f", step, loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=2)
    ap.add_argument("--cols", type=int, default=2)
    ap.add_argument("--size", type=int, default=2000)
    ap.add_argument("--steps", type=int, default=200000)
    ap.add_argument("--average-every", type=int, default=5)
    ap.add_argument("--seed", type=int, default=21)
    a = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(a, port), nprocs=a.rows * a.cols, start_method="fork")
