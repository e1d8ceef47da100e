"""Call different collectives on different ranks.

A branch depends on the rank: rank 0 calls broadcast where the others call all_reduce. All wait,
each for a call that the others will never make.
"""

import itertools
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

STEPS = 20


def break_up(rank, values):
    if rank == 0:
        print("ready", flush=True)
    if rank == 0 and not mended():
        dist.broadcast(values, src=1)
    else:
        dist.all_reduce(values)


def train(rank, store):
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=3)
    values = torch.ones(1000)
    for step in itertools.count():
        if step == STEPS:
            break_up(rank, values)
        dist.all_reduce(values)
        values /= 3
        time.sleep(0.05)


def main():
    begin(__doc__)
    store = "file://" + os.path.join(tempfile.gettempdir(), "store")
    mp.spawn(train, args=(store,), nprocs=3)


if __name__ == "__main__":
    main()
