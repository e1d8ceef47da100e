import argparse
import logging
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from train import Trainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--steps", type=int, default=200000)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--features", type=int, default=64)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--save-every", type=int, default=40)
    p.add_argument("--checkpoint-mode", choices=["async", "sync"], default="async")
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
    with tempfile.TemporaryDirectory(prefix="ckpt-") as directory:
        mp.start_processes(run, args=(args, port, directory), nprocs=args.world_size,
                           start_method="fork")


if __name__ == "__main__":
    main()
