"""Trains a small deblurring network with DDP and evaluates it on the test set."""
import argparse
import socket

import torch.multiprocessing as mp

from trainer import run


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--n-gpus", type=int, default=3, help="number of processes")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--train-size", type=int, default=96)
    p.add_argument("--test-size", type=int, default=101)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--patch", type=int, default=36)
    p.add_argument("--lr", type=float, default=1e-3)
    args = p.parse_args()
    mp.start_processes(run, args=(args, free_port()), nprocs=args.n_gpus, start_method="fork")


if __name__ == "__main__":
    main()
