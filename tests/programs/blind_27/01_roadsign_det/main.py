"""Distributed training of the road-sign detector."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from runner import EpochBasedRunner


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--gpus", type=int, default=3)
    p.add_argument("--num-images", type=int, default=4000)
    p.add_argument("--samples-per-gpu", type=int, default=2)
    p.add_argument("--max-epochs", type=int, default=12)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=2)
    p.add_argument("--log-interval", type=int, default=5)
    p.add_argument("--filter-empty-gt", action="store_true")
    return p.parse_args()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(name)s - %(levelname)s - %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.gpus)
    EpochBasedRunner(args, rank).run()
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(args, port), nprocs=args.gpus, start_method="fork")


if __name__ == "__main__":
    main()
