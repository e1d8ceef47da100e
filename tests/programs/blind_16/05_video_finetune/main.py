"""Fine-tunes a small video model on a folder of clips with several processes."""
import argparse
import socket

import torch.multiprocessing as mp

from train import worker


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--world-size", type=int, default=4)
    p.add_argument("--clips", type=int, default=4000)
    p.add_argument("--frames", type=int, default=9)
    p.add_argument("--batch-size", type=int, default=1)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--seed", type=int, default=42)
    args = p.parse_args()
    mp.start_processes(worker, args=(args, free_port()), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
