import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainer import Trainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--steps", type=int, default=10 ** 7)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--depth", type=int, default=5)
    p.add_argument("--dim", type=int, default=4096)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--gc-freq", type=int, default=40, help="collect garbage every N steps")
    p.add_argument("--eval-every", type=int, default=100)
    p.add_argument("--eval-batches", type=int, default=20)
    p.add_argument("--seed", type=int, default=6)
    return p.parse_args()


def run(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Trainer(args, rank).fit()
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
