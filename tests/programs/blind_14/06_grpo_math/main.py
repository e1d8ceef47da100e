import argparse
import socket

import torch.multiprocessing as mp

from trainer import run


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def parse_args():
    p = argparse.ArgumentParser(description="GRPO on graded math problems")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--prompts", type=int, default=6)
    p.add_argument("--group-size", type=int, default=6)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--log-every", type=int, default=2)
    p.add_argument("--seed", type=int, default=11)
    args = p.parse_args()
    args.port = free_port()
    return args


if __name__ == "__main__":
    args = parse_args()
    mp.start_processes(run, args=(args,), nprocs=args.world_size, start_method="fork")
