"""Local SGD classifier; two of the ranks also form the evaluation committee."""
import argparse
import logging
import os
import socket
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from optim import MomentumSgd
from committee import Committee

log = logging.getLogger("localsgd")


class Blobs:
    def __init__(self, classes, dim, seed):
        g = torch.Generator().manual_seed(seed)
        self.centres = 2 * torch.randn(classes, dim, generator=g)

    def sample(self, n, g):
        y = torch.randint(0, len(self.centres), (n,), generator=g)
        return self.centres[y] + torch.randn(n, self.centres.shape[1], generator=g), y


class LocalSgd:
    def __init__(self, model, lr, sync_every):
        self.model, self.sync_every = model, sync_every
        self.slow_group = None
        self.opt = MomentumSgd(model.parameters(), lr=lr)

    def start_outer_averaging(self):
        """From now on the momentum is averaged as well, with more patience than the weights."""
        self.slow_group = dist.new_group(list(range(dist.get_world_size())), timeout=timedelta(hours=2))

    def average_momentum(self):
        for b in self.opt.buf:
            dist.all_reduce(b, group=self.slow_group)
            b /= dist.get_world_size()

    def step(self, step, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if step % self.sync_every == 0:
            for p in self.model.parameters():
                dist.all_reduce(p.data)
                p.data /= dist.get_world_size()
            if self.slow_group is not None:
                self.average_momentum()
        return loss.item()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    torch.manual_seed(0)
    data = Blobs(10, 32, seed=1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    trainer = LocalSgd(model, 0.02, args.sync_every)
    committee = Committee(args.committee, data.sample(2000, torch.Generator().manual_seed(9)))
    g = torch.Generator().manual_seed(100 + rank)
    for step in range(1, args.steps + 1):
        loss = trainer.step(step, *data.sample(64, g))
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            log.info("step %d loss %.4f", step, loss)
        if step == args.warmup:
            log.info("warm-up is over")
            trainer.start_outer_averaging()
        if step % args.eval_every == 0 and rank in committee:
            acc = committee.score(model, rank)
            log.info("step %d held-out accuracy %.3f", step, acc)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=4)
    ap.add_argument("--committee", type=int, nargs="+", default=[1, 3])
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--sync-every", type=int, default=5)
    ap.add_argument("--eval-every", type=int, default=30)
    ap.add_argument("--warmup", type=int, default=100)
    a = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(a, port), nprocs=a.world_size, start_method="fork")
