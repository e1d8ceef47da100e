"""Contrastive pre-training of a small encoder, data parallel over gloo."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from data import TwoViewDataset
from trainer import ContrastiveTrainer


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def run_rank(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + rank)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world)
    trainer = ContrastiveTrainer(rank, args.world, TwoViewDataset(), args.batch_size, args.lr)
    deadline = time.monotonic() + args.seconds
    epoch = 0
    while True:
        trainer.train_epoch(epoch, args.log_every)
        epoch += 1
        stop = torch.tensor([float(time.monotonic() > deadline)])
        dist.all_reduce(stop)
        if stop.item() > 0:
            break
    if rank == 0:
        torch.save(trainer.model.module.state_dict(), os.path.join(args.out, "encoder.pt"))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=125)
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--out", default=".")
    args = parser.parse_args()
    mp.spawn(run_rank, args=(args, free_port()), nprocs=args.world)


if __name__ == "__main__":
    main()
