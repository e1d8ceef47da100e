import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from client import Client


def parse_args():
    p = argparse.ArgumentParser(description="local SGD with partial participation")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--rounds", type=int, default=10 ** 6)
    p.add_argument("--local-steps", type=int, default=25)
    p.add_argument("--round-interval", type=float, default=0.25,
                   help="seconds between the starts of two rounds")
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--features", type=int, default=64)
    p.add_argument("--classes", type=int, default=12)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=2)
    return p.parse_args()


def run(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Client(args, rank).fit()
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
