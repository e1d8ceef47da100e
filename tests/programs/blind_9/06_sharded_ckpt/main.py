"""Data-parallel regression with a sharded momentum buffer (gloo)."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from checkpoint import ShardedCheckpointer

log = logging.getLogger("train")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SinusData:
    def __init__(self, rank, n, noise, seed):
        g = torch.Generator().manual_seed(seed * 100 + rank)
        self.x = torch.rand(n, 4, generator=g) * 4 - 2
        self.y = self.x.sin().sum(1, keepdim=True) + noise * torch.randn(n, 1, generator=g)
        self.g = g

    def batch(self, size):
        idx = torch.randint(0, len(self.x), (size,), generator=self.g)
        return self.x[idx], self.y[idx]


class ShardedMomentum:
    def __init__(self, params, rank, world_size, lr, beta=0.9):
        self.params = list(params)
        n = parameters_to_vector(self.params).numel()
        self.chunk = -(-n // world_size)
        self.rank, self.world_size, self.lr, self.beta = rank, world_size, lr, beta
        self.shard = torch.zeros(self.chunk)

    def step(self):
        grad = torch.cat([p.grad.reshape(-1) for p in self.params])
        dist.all_reduce(grad)
        grad /= self.world_size
        padded = nn.functional.pad(grad, (0, self.chunk * self.world_size - grad.numel()))
        mine = padded[self.rank * self.chunk:(self.rank + 1) * self.chunk]
        self.shard.mul_(self.beta).add_(mine)
        full = [torch.empty_like(self.shard) for _ in range(self.world_size)]
        dist.all_gather(full, self.shard)
        flat = parameters_to_vector(self.params).detach()
        flat -= self.lr * torch.cat(full)[:flat.numel()]
        vector_to_parameters(flat, self.params)


def worker(rank, args, port, directory):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
    opt = ShardedMomentum(model.parameters(), rank, args.world_size, args.lr)
    train = SinusData(rank, 4000, 0.3, args.seed)
    val = SinusData(rank, 120, 0.3, args.seed + 1)
    ckpt = ShardedCheckpointer(directory, args.world_size, rank)
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            x, y = train.batch(64)
            loss = nn.functional.mse_loss(model(x), y)
            model.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.02)
        with torch.no_grad():
            val_loss = nn.functional.mse_loss(model(val.x), val.y).item()
        if rank == 0:
            log.info("epoch %d train %.4f val %.5f", epoch, loss.item(), val_loss)
        ckpt.after_validation(epoch, val_loss, model, opt.shard)
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=2000)
    ap.add_argument("--steps", type=int, default=8)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--seed", type=int, default=4)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="ckpt_") as d:
        mp.start_processes(worker, args=(a, free_port(), d), nprocs=a.world_size, start_method="fork")
