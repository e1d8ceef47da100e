"""Regression on sharded data with local SGD over a slow interconnect."""
import argparse
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn

from local_sgd import LocalSGD

log = logging.getLogger("localsgd")


def build_model(args):
    return nn.Sequential(
        nn.Linear(args.in_dim, args.hidden), nn.GELU(), nn.Linear(args.hidden, args.hidden), nn.GELU(),
        nn.Linear(args.hidden, 1))


class Shard:
    """Rank-local data; the shards are not identically distributed."""

    def __init__(self, args, rank):
        self.rng = torch.Generator().manual_seed(11 + rank)
        teacher = torch.Generator().manual_seed(3)
        self.w = torch.randn(args.in_dim, generator=teacher) / args.in_dim ** 0.5
        self.shift = 0.3 * rank
        self.in_dim = args.in_dim

    def batch(self, n):
        x = torch.randn(n, self.in_dim, generator=self.rng) + self.shift
        y = torch.sin(2 * x @ self.w) + 0.05 * torch.randn(n, generator=self.rng)
        return x, y


class Trainer:
    def __init__(self, args, rank, device):
        self.args, self.rank, self.device = args, rank, device
        torch.manual_seed(args.seed + rank)
        self.model = build_model(args).to(device)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.shard = Shard(args, rank)
        self.started = time.time()

    def local_step(self):
        x, y = self.shard.batch(self.args.batch)
        time.sleep(self.args.read_time)
        loss = nn.functional.mse_loss(self.model(x.to(self.device)).squeeze(-1), y.to(self.device))
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.optim.step()
        return loss.item()

    def param_norm(self):
        return torch.stack([p.detach().norm() for p in self.model.parameters()]).norm().item()

    def out_of_time(self):
        flag = torch.tensor([float(time.time() - self.started > self.args.train_seconds)], device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return flag.item() > 0

    def train(self):
        with LocalSGD(self.model, self.args.local_steps) as local_sgd:
            while True:
                loss = self.local_step()
                before = self.param_norm()
                if not local_sgd.step():
                    if local_sgd.num_steps % 16 == 0:
                        log.info("rank %d step %d loss %.4f |theta| %.6f", self.rank, local_sgd.num_steps, loss, before)
                    continue
                log.info("rank %d step %d averaged: |theta| %.6f -> %.6f", self.rank, local_sgd.num_steps, before,
                         self.param_norm())
                if self.out_of_time():
                    break
        if self.rank == 0:
            log.info("finished after %d local steps", local_sgd.num_steps)


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank}")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=args.world_size)
    Trainer(args, rank, device).train()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--in-dim", type=int, default=128)
    p.add_argument("--hidden", type=int, default=512)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--local-steps", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--read-time", type=float, default=0.01)
    p.add_argument("--train-seconds", type=float, default=100)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--time-limit", type=float, default=128)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world_size)


if __name__ == "__main__":
    main()
