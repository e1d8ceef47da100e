"""Small mixture-of-experts run on CPU with gloo."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from groups import ExpertLayout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(name)s %(message)s", force=True)
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    log = logging.getLogger("moe")
    log.info("joined")

    layout = ExpertLayout(args.world_size, range(args.world_size - 1))
    group = layout.setup(rank)
    layer = nn.Linear(args.dim, args.dim)
    for step in range(args.steps):
        tokens = torch.randn(args.tokens, args.dim)
        dist.broadcast(tokens, src=args.world_size - 1)
        if group is not None:
            out = layer(tokens)
            dist.all_reduce(out.detach(), group=group)
        if step % 50 == 0:
            log.info("step %d", step)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--steps", type=int, default=2000)
    args = p.parse_args()
    mp.start_processes(run, args=(args, free_port()), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
