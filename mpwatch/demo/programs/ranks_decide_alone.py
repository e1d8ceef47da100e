"""Let each rank lower its learning rate by a loss that only it has.

Each rank validates its own part of the data and gives that loss to ReduceLROnPlateau. The gradients
are averaged, but the learning rates part, and with them the weights. Nothing fails.

The function with that statement is a file of its own, because its source shows the mistake: with
`--mended` there must be no such statement in the program.
"""

import itertools
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mpwatch.demo.bounds import begin, mended

RATES = """\
from torch.optim.lr_scheduler import ReduceLROnPlateau


def follow(optimizer, losses, mean_of_ranks):
    plateau = ReduceLROnPlateau(optimizer, patience=1, factor=0.5)
    for loss in losses:
        plateau.step({value})
"""


def validate(model, rank, epoch):
    noise = 0.0 if rank else 0.3 * (epoch % 3)  # the part of rank 0 is the harder one
    values = torch.ones(16, 8)
    return (model.module(values) - values).square().mean().item() + noise


def mean_of_ranks(loss):
    value = torch.tensor([loss])
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def compare(rank, optimizer):
    rate = torch.tensor([optimizer.param_groups[0]["lr"]])
    highest = rate.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    apart = (highest - rate).abs()
    dist.all_reduce(apart, op=dist.ReduceOp.MAX)
    if rank == 0 and apart.item() > 1e-6:
        print(f"the learning rates of the ranks differ by {apart.item():.4f}", flush=True)


def losses(rank, model, optimizer):
    for epoch in itertools.count():
        values = torch.randn(16, 8)
        loss = (model(values) - values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield validate(model, rank, epoch)
        compare(rank, optimizer)
        if rank == 0 and epoch == 0:
            print("ready", flush=True)
        time.sleep(0.2)


def train(rank, folder):
    sys.path.insert(0, folder)
    rates = import_module("rates")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rates.follow(optimizer, losses(rank, model, optimizer), mean_of_ranks)


def main():
    begin(__doc__)
    folder = tempfile.gettempdir()
    value = "mean_of_ranks(loss)" if mended() else "loss"
    Path(folder, "rates.py").write_text(RATES.format(value=value))
    mp.spawn(train, args=(folder,), nprocs=2)


if __name__ == "__main__":
    main()
