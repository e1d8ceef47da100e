import argparse
import socket

import torch.multiprocessing as mp

from trainer import run_rank


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description="document classifier with automatic microbatching")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--memory-mb", type=int, default=450, help="memory per rank on top of the start-up size")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--log-every", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=157)
    args = parser.parse_args()
    mp.start_processes(run_rank, args=(args.world_size, free_port(), args), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
