import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from distill import OnPolicyDistiller


def parse_args():
    p = argparse.ArgumentParser(description="on-policy distillation with a partitioned student")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--batch-size", type=int, default=3)
    p.add_argument("--prompt-len", type=int, default=12)
    p.add_argument("--max-new-tokens", type=int, default=40)
    p.add_argument("--vocab", type=int, default=64)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    OnPolicyDistiller(args, rank).fit()
    dist.destroy_process_group()


def main():
    args = parse_args()
    mp.start_processes(run, args=(args, free_port()), nprocs=args.world_size,
                       start_method="fork")


if __name__ == "__main__":
    main()
