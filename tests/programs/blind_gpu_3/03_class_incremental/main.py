"""Class-incremental learning with DDP: new classes arrive task by task."""
import argparse
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

from model import IncrementalNet

log = logging.getLogger("cil")


class TaskStream:
    """Images of class c are noise around a fixed class prototype; every rank draws its own shard."""

    def __init__(self, total_classes, rank, image_size=32):
        gen = torch.Generator().manual_seed(1234)
        self.prototypes = torch.randn(total_classes, 3, image_size, image_size, generator=gen)
        self.rng = torch.Generator().manual_seed(99 + rank)

    def batch(self, num_classes, size):
        y = torch.randint(0, num_classes, (size,), generator=self.rng)
        x = self.prototypes[y] + 1.5 * torch.randn(size, *self.prototypes.shape[1:], generator=self.rng)
        return x, y


class IncrementalTrainer:
    def __init__(self, args, rank, world_size, device):
        self.args, self.rank, self.world_size, self.device = args, rank, world_size, device
        self.stream = TaskStream(args.base_classes + args.tasks * args.new_classes, rank)
        torch.manual_seed(args.seed)
        net = IncrementalNet(num_classes=args.base_classes).to(device)
        self.model = DDP(net, device_ids=[0] if device == "cuda" else None, find_unused_parameters=True)
        self.optim = self.make_optimizer()
        self.step = 0

    def make_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.args.lr, momentum=0.9)

    def start_task(self, task):
        if task > 0:
            self.model.module.expand_classifier(self.args.new_classes)
            self.optim = self.make_optimizer()
        if self.rank == 0:
            log.info("task %d: %d classes", task, self.model.module.num_classes)

    def train_step(self):
        x, y = self.stream.batch(self.model.module.num_classes, self.args.batch)
        x, y = x.to(self.device), y.to(self.device)
        logits = self.model(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.optim.step()
        self.step += 1
        acc = (logits.argmax(1) == y).float().mean().item()
        if self.step % self.args.log_every == 0:
            w = self.model.module.classifier.weight.detach()
            log.info("rank %d step %d loss %.4f acc %.3f |W| %.5f", self.rank, self.step, loss.item(), acc,
                     w.norm().item())

    def fit(self):
        for task in range(self.args.tasks + 1):
            self.start_task(task)
            steps = self.args.base_steps if task == 0 else self.args.task_steps
            for _ in range(steps):
                self.train_step()
                time.sleep(self.args.throttle)


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit_walltime(args.time_limit)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_HOSTID=f"node{rank}")
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=args.world_size)
    IncrementalTrainer(args, rank, args.world_size, device).fit()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--base-classes", type=int, default=10)
    p.add_argument("--new-classes", type=int, default=10)
    p.add_argument("--tasks", type=int, default=4)
    p.add_argument("--base-steps", type=int, default=60)
    p.add_argument("--task-steps", type=int, default=4000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--throttle", type=float, default=0.01, help="pause per step on the shared node")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(args, port), nprocs=args.world_size)


if __name__ == "__main__":
    main()
