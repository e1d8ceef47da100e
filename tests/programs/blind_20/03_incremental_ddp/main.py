"""Class-incremental training, data parallel on two ranks."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import walltime
from model import GrowingNet
from stream import TaskStream

log = logging.getLogger("train")


class Trainer:
    def __init__(self, args, rank: int):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        net = GrowingNet(args.features, args.dim, args.depth, args.classes_per_task)
        self.model = DDP(net, find_unused_parameters=True)
        torch.manual_seed(args.seed + rank)
        self.stream = TaskStream(args.features, args.classes_per_task, args.tasks, args.seed, rank)
        self.loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.task = 0
        self.opt = self.make_optimizer()

    def make_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.args.lr, momentum=0.9, weight_decay=1e-4)

    def next_task(self) -> None:
        self.task += 1
        self.model.module.add_classes(self.args.classes_per_task)
        self.opt = self.make_optimizer()
        if self.rank == 0:
            log.info("task %d: %d classes", self.task, self.model.module.classes)

    def step(self) -> float:
        self.model.train()
        x, y = self.stream.batch(self.task, self.args.batch_size)
        self.opt.zero_grad(set_to_none=True)
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def weight_norm(self) -> float:
        return torch.sqrt(sum((p.double() ** 2).sum() for p in self.model.parameters())).item()

    @torch.no_grad()
    def accuracy(self, size: int = 512) -> float:
        self.model.eval()
        x, y = self.stream.test_set(self.task, size)
        return (self.model.module(x).argmax(dim=1) == y).float().mean().item()


def run(rank: int, args) -> None:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    walltime.arm(args.limit)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    trainer = Trainer(args, rank)
    borders = {args.first_task_steps + k * args.task_steps for k in range(args.tasks - 1)}
    started = time.monotonic()
    for step in range(1, args.steps + 1):
        if step in borders:
            trainer.next_task()
        loss = trainer.step()
        time.sleep(args.loader_seconds)
        if step % args.log_every == 0:
            log.info("step %4d loss %.4f |w| %.6f acc %.3f", step, loss, trainer.weight_norm(), trainer.accuracy())
    log.info("trained %d steps in %.0f s", args.steps, time.monotonic() - started)
    dist.barrier()
    dist.destroy_process_group()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--features", type=int, default=48)
    p.add_argument("--dim", type=int, default=96)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--classes-per-task", type=int, default=10)
    p.add_argument("--tasks", type=int, default=5)
    p.add_argument("--first-task-steps", type=int, default=30)
    p.add_argument("--task-steps", type=int, default=400)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--steps", type=int, default=5000)
    p.add_argument("--loader-seconds", type=float, default=0.03)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--limit", type=float, default=115.0)
    p.add_argument("--seed", type=int, default=11)
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
