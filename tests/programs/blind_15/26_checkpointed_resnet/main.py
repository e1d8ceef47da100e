"""Data-parallel training where the first rank writes a checkpoint now and then."""
import argparse
import logging
import os
import shutil
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from checkpoint import CheckpointWriter


class ResidualNet(nn.Module):
    def __init__(self, width=384, blocks=8, classes=10):
        super().__init__()
        self.stem = nn.Linear(128, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(),
                                                  nn.Linear(width, width)) for _ in range(blocks))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class DistributedOptimizer:
    """Averages the gradients over all ranks before the step of the wrapped optimizer."""

    def __init__(self, optimizer, params):
        self.optimizer = optimizer
        self.params = list(params)

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.params])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        offset = 0
        for p in self.params:
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()
        self.optimizer.step()


def train(rank, args, port, folder):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    log = logging.getLogger("train")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    model = ResidualNet()
    optimizer = DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=args.lr), model.parameters())
    writer = CheckpointWriter(folder, keep=2)
    centers = torch.randn(10, 128, generator=torch.Generator().manual_seed(1))
    g = torch.Generator().manual_seed(100 + rank)
    step, finished = 0, torch.zeros(1)
    t0 = time.time()
    while not finished.item():
        label = torch.randint(10, (args.batch_size,), generator=g)
        x = centers[label] + 6.0 * torch.randn(args.batch_size, 128, generator=g)
        loss = nn.functional.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(args.input_pause)
        if rank == 0 and step % args.save_every == 0:
            t = time.time()
            writer.save(step, model.state_dict(), optimizer.optimizer.state_dict())
            log.info("checkpoint of step %d written in %.1f s", step, time.time() - t)
        if step % args.log_every == 0:
            finished.fill_(float(time.time() - t0 > args.duration))
            dist.broadcast(finished, src=0)
            if rank == 0:
                log.info("step %d loss %.4f", step, loss.item())
    log.info("finished after %d steps", step)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--duration", type=float, default=95)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--input-pause", type=float, default=0.03)
    p.add_argument("--save-every", type=int, default=80)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    folder = tempfile.mkdtemp(prefix="resnet_")
    try:
        mp.start_processes(train, args=(args, free_port(), folder), nprocs=args.world_size, start_method="fork")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
