"""Self-supervised pretraining of a small projector on two ranks."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import walltime
from amp_trainer import Trainer

log = logging.getLogger("pretrain")


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float) -> None:
        self.total += value
        self.count += 1

    @property
    def avg(self) -> float:
        return self.total / max(1, self.count)


def train_epoch(trainer: Trainer, epoch: int, args, end: float) -> bool:
    losses, batch_time = AverageMeter(), AverageMeter()
    stop = torch.zeros(1)
    for it in range(args.iterations):
        begin = time.monotonic()
        losses.update(trainer.step())
        batch_time.update(time.monotonic() - begin)
    stop[0] = float(time.monotonic() > end)
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    if trainer.rank == 0:
        log.info("Epoch: [%d] loss %.4f batch %.3f s scale %g skipped %d",
                 epoch, losses.avg, batch_time.avg, trainer.scaler.get_scale(), trainer.skipped)
    return bool(stop.item())


def run(rank: int, args) -> None:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(levelname)s %(message)s")
    walltime.arm(args.limit)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    trainer = Trainer(args, rank)
    end = time.monotonic() + args.train_seconds
    for epoch in range(args.epochs):
        if train_epoch(trainer, epoch, args, end):
            break
    dist.destroy_process_group()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--features", type=int, default=64)
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--clusters", type=int, default=300)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--init-scale", type=float, default=2.0 ** 24)
    p.add_argument("--growth-interval", type=int, default=25)
    p.add_argument("--iterations", type=int, default=50)
    p.add_argument("--epochs", type=int, default=100_000)
    p.add_argument("--train-seconds", type=float, default=100.0)
    p.add_argument("--limit", type=float, default=115.0)
    p.add_argument("--seed", type=int, default=2)
    return p.parse_args()


def main() -> None:
    args = parse_args()
    walltime.arm(args.limit)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    mp.start_processes(run, args=(args,), nprocs=args.ranks, start_method="fork")


if __name__ == "__main__":
    main()
