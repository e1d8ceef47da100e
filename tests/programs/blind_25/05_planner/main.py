import argparse
import logging
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainer import Trainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--steps", type=int, default=10 ** 7)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--classes", type=int, default=20)
    p.add_argument("--lr", type=float, default=0.003)
    p.add_argument("--weight-decay", type=float, default=1e-4)
    p.add_argument("--save-every", type=int, default=20)
    p.add_argument("--chunk", type=int, default=8, help="elements per written chunk")
    p.add_argument("--seed", type=int, default=4)
    return p.parse_args()


def run(rank, args, port, directory):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Trainer(args, rank, directory).fit()
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="save-") as directory:
        mp.start_processes(run, args=(args, port, directory), nprocs=args.world_size,
                           start_method="fork")


if __name__ == "__main__":
    main()
