"""Data parallel training with a long report on the first rank after every phase."""
import argparse
import logging
import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from report import Report

log = logging.getLogger("rank0")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def train_phase(model, optim, steps, gen):
    for _ in range(steps):
        x = torch.randn(16, 24, generator=gen)
        loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        optim.zero_grad()
        loss.backward()
        optim.step()
        time.sleep(0.04)
    return loss.item()


def run_rank(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world,
                            timeout=timedelta(minutes=args.timeout))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 8)))
    optim = torch.optim.SGD(model.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(rank)
    for phase in range(args.phases):
        loss = train_phase(model, optim, args.steps, gen)
        if rank == 0:
            log.info("phase %d loss %.3f, report on %d sentences", phase, loss, args.sentences)
            log.info("phase %d report score %.3f", phase, Report(args.sentences).run(model.module))
        dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--phases", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--sentences", type=int, default=600)
    parser.add_argument("--timeout", type=float, default=20, help="minutes")
    args = parser.parse_args()
    mp.spawn(run_rank, args=(args, free_port()), nprocs=args.world)


if __name__ == "__main__":
    main()
