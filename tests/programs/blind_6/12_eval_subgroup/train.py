"""Recommender training; validation is sharded over the first two ranks only."""
import argparse
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from groups import CheckpointGroup, EvalGroup, Topology


class TwoTower(nn.Module):
    def __init__(self, users=2000, items=3000, dim=24):
        super().__init__()
        self.users, self.items = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.mix = nn.Linear(dim, dim)

    def forward(self, u, i):
        return (self.mix(self.users(u)) * self.items(i)).sum(-1)


def batch(gen, n=64):
    u = torch.randint(0, 2000, (n,), generator=gen)
    i = torch.randint(0, 3000, (n,), generator=gen)
    return u, i, ((u + i) % 5 == 0).float()


class Worker:
    def __init__(self, rank, topology, args):
        self.rank, self.args = rank, args
        self.log = logging.getLogger("rec")
        self.topology = topology
        self.model = DDP(TwoTower())
        self.opt = torch.optim.SGD(self.model.parameters(), 0.1)
        self.gen = torch.Generator().manual_seed(rank)
        self.eval_group = self.ckpt_group = None

    def step(self):
        u, i, y = batch(self.gen)
        loss = nn.functional.binary_cross_entropy_with_logits(self.model(u, i), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        if self.eval_group is None:
            self.eval_group = EvalGroup(self.topology)
        u, i, y = batch(self.gen, 512)
        acc = ((self.model.module(u, i) > 0) == (y > 0)).float().mean()
        return self.eval_group.mean(acc)

    def checkpoint(self, step):
        if self.ckpt_group is None:
            self.ckpt_group = CheckpointGroup()
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), self.args.out)
            self.log.info("step %d checkpoint written", step)
        self.ckpt_group.wait()

    def run(self):
        for step in range(1, self.args.steps + 1):
            loss = self.step()
            if step % 20 == 0:
                self.log.info("step %d loss %.4f", step, loss)
            if step % self.args.eval_every == 0 and self.topology.is_evaluator(self.rank):
                self.log.info("step %d val acc %.3f", step, self.validate())
            if step % self.args.save_every == 0:
                self.checkpoint(step)
            time.sleep(0.01)


def entry(rank, topology, port, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=topology.world_size)
    Worker(rank, topology, args).run()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=4)
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--eval-every", type=int, default=40)
    ap.add_argument("--save-every", type=int, default=60)
    ap.add_argument("--out", default=None)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    args.out = args.out or os.path.join(tempfile.mkdtemp(prefix="recsys_"), "last.pt")
    torch.set_num_threads(1)
    topology = Topology(args.world_size)
    mp.start_processes(
        entry, args=(topology, port, args), nprocs=args.world_size, start_method="fork"
    )


if __name__ == "__main__":
    main()
