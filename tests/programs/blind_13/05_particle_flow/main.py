"""Trains the particle-flow network on several processes of this host."""
import argparse
import logging
import os
import socket
import tempfile

import torch
import torch._dynamo  # noqa: F401  needed by torch.optim; imported once before the fork
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from pfmodel import MLPF
from training import train_all_epochs


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--gpus", type=int, default=3, help="number of training processes")
    p.add_argument("--num-epochs", type=int, default=50)
    p.add_argument("--steps-per-epoch", type=int, default=25)
    p.add_argument("--val-steps", type=int, default=15)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--outdir", default=None)
    return p.parse_args()


def setup_logging(rank):
    logging.basicConfig(level=logging.INFO, force=True, format=f"%(asctime)s rank{rank}[%(process)d] %(message)s")


def run(rank, world_size, port, args):
    setup_logging(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DDP(MLPF())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train_all_epochs(rank, world_size, model, optimizer, args)
    dist.destroy_process_group()


def main():
    args = parse_args()
    if args.outdir is None:
        args.outdir = tempfile.mkdtemp(prefix="pf-")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args.gpus, port, args), nprocs=args.gpus, start_method="fork")


if __name__ == "__main__":
    main()
