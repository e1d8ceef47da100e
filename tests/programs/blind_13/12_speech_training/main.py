"""CTC training on two ranks; utterances are visited from short to long."""
import argparse
import logging
import os
import socket
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch._dynamo  # noqa: F401  torch.optim needs it; imported once, before the fork
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from dataset import CurriculumBatches
from model import AcousticModel
from train import train_epochs


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--utterances", type=int, default=2000)
    p.add_argument("--train-batch-size", type=int, default=4)
    p.add_argument("--min-frames", type=int, default=60)
    p.add_argument("--max-frames", type=int, default=1400)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--time-limit", type=float, default=95.0, help="seconds of training")
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--display-step", type=int, default=10)
    return p.parse_args()


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, force=True, format=f"%(asctime)s rank{rank}[%(process)d] %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    model = DDP(AcousticModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    batches = CurriculumBatches(args, rank, args.ranks)
    train_epochs(rank, model, optimizer, batches, args)
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.ranks, start_method="fork")
    return 0


if __name__ == "__main__":
    sys.exit(main())
