import logging
import time

import torch
import torch.distributed as dist
from torch import nn

DIM, CLASSES = 256, 32


def mlp(width):
    return nn.Sequential(nn.Linear(DIM, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))


class Teacher:
    def __init__(self, members):
        self.members = [mlp(1536) for _ in range(members)]

    @torch.no_grad()
    def label(self, x):
        total = torch.zeros(len(x), CLASSES)
        for net in self.members:
            for _ in range(3):
                total += net(x + 0.1 * torch.randn_like(x)).softmax(-1)
        return total / (3 * len(self.members))


class Student:
    def __init__(self):
        self.net = mlp(128)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def fit(self, x, target):
        self.opt.zero_grad()
        loss = nn.functional.kl_div(self.net(x).log_softmax(-1), target, reduction="batchmean")
        loss.backward()
        self.opt.step()
        return loss.item()


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.students + 1)
    role = Teacher(args.ensemble) if rank == 0 else Student()
    gen = torch.Generator().manual_seed(1)
    end = time.time() + args.duration
    go_on = torch.ones(1)
    step = 0
    while True:
        x = torch.randn(args.batch, DIM, generator=gen)
        target = role.label(x) if rank == 0 else torch.empty(args.batch, CLASSES)
        dist.broadcast(target, src=0)
        if rank:
            loss = role.fit(x, target)
            if rank == 1 and step % 5 == 0:
                logging.info("batch %d kl %.4f", step, loss)
        go_on[0] = float(time.time() < end)
        dist.broadcast(go_on, src=0)
        step += 1
        if not go_on.item():
            break
    dist.destroy_process_group()
