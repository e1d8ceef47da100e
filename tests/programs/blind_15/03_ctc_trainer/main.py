"""Train a small CTC acoustic model with DDP on synthetic utterances."""
import argparse
import logging
import socket

import torch.multiprocessing as mp

from trainer import Trainer


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--epochs", type=int, default=60)
    p.add_argument("--utterances", type=int, default=1440)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO,
                        format="%(asctime)s rank" + str(rank) + " %(name)s: %(message)s")
    Trainer(rank, args, port).fit()


def main():
    args = parse_args()
    mp.spawn(run, args=(args, free_port()), nprocs=args.nproc)


if __name__ == "__main__":
    main()
