import argparse
import socket

import torch.multiprocessing as mp

from train import run


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def parse_args():
    p = argparse.ArgumentParser(description="Train a code search encoder")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--train-size", type=int, default=9600)
    p.add_argument("--valid-size", type=int, default=320)
    p.add_argument("--length", type=int, default=48)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--log-every", type=int, default=5)
    p.add_argument("--eval-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    args.port = free_port()
    return args


if __name__ == "__main__":
    args = parse_args()
    mp.start_processes(run, args=(args,), nprocs=args.world_size, start_method="fork")
