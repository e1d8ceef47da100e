"""Train a small language model with expert-parallel sparse layers, one process per rank."""
import argparse
import datetime
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainer import Trainer


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--experts", type=int, default=3)
    p.add_argument("--layers", type=int, default=1)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--vocab", type=int, default=96)
    p.add_argument("--domains", type=int, default=4)
    p.add_argument("--batch", type=int, default=2, help="sequences per rank")
    p.add_argument("--seq", type=int, default=16)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--balance-coef", type=float, default=0.0, help="weight of the load balancing loss")
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size,
                            timeout=datetime.timedelta(minutes=30))
    Trainer(args, rank, args.world_size).fit()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    args = parse_args()
    mp.start_processes(run, args=(args, free_port()), nprocs=args.world_size, start_method="fork")
