"""Compute the loss from the module inside of DistributedDataParallel.

Only the forward pass of the wrapper prepares the averaging of gradients. Here a method of the
module is called instead, so each rank trains on its own, and the weights drift apart.
"""

import itertools
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mpwatch.demo.bounds import begin, mended

CHECKED = 40


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def embed(self, values):
        return self.layer(values).tanh()

    def forward(self, values):
        return self.embed(values)


def compare(rank, step, model):
    weight = model.module.layer.weight.detach().clone()
    highest = weight.clone()
    dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    apart = (highest - weight).abs().max().item()
    if rank == 0:
        print("ready", flush=True)
        if step and apart > 1e-6:
            print(f"the weights of the ranks differ by {apart:.4f}", flush=True)


def train(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = DistributedDataParallel(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in itertools.count():
        if step % CHECKED == 0:
            compare(rank, step, model)
        values = torch.randn(16, 8)
        encoded = model(values) if mended() else model.module.embed(values)
        loss = (encoded - values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)


def main():
    begin(__doc__)
    store = "file://" + os.path.join(tempfile.gettempdir(), "store")
    mp.spawn(train, args=(store,), nprocs=2)


if __name__ == "__main__":
    main()
