"""Pretraining with asynchronous distributed checkpoints."""
import argparse
import logging
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from training import Trainer


def run(rank, args, port, save_dir):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(process)d] %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Trainer(args, rank, save_dir).train()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--train-iters", type=int, default=100000)
    p.add_argument("--micro-batch-size", type=int, default=4)
    p.add_argument("--save-interval", type=int, default=40)
    p.add_argument("--keep-checkpoints", type=int, default=2)
    p.add_argument("--write-mb-per-s", type=float, default=2.5, help="share of the file system's bandwidth")
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--seed", type=int, default=1234)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ckpt_") as save_dir:
        mp.start_processes(run, args=(args, port, save_dir), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
