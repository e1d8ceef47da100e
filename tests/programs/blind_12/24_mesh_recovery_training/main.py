"""Human mesh recovery on synthetic bodies, two data parallel ranks."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainer import MeshTrainer


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    MeshTrainer(args).fit()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--train-steps", type=int, default=10)
    parser.add_argument("--val-steps", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=130)
    parser.add_argument("--epoch-seconds", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()
    mp.start_processes(worker, args=(args, free_port()), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
