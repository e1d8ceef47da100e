import argparse
import socket

import torch.multiprocessing as mp

from pretrain import run_rank


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description="masked unit prediction with sharded weights")
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--layerdrop", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--mask-prob", type=float, default=0.15)
    parser.add_argument("--steps", type=int, default=50000)
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=68)
    args = parser.parse_args()
    mp.start_processes(run_rank, args=(args.world_size, free_port(), args), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
