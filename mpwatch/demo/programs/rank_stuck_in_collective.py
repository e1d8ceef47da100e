"""Keep all ranks waiting for one.

One rank writes a checkpoint to a slow disk. The other is in the next all-reduce already and will be
the one to report an error, after the timeout.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

CHECKPOINT_STEP = 5


def write_checkpoint(rank, step):
    if rank == 1 and step == CHECKPOINT_STEP:
        print("ready", flush=True)
        time.sleep(2 if mended() else 1000)


def train(rank, store):
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    gradient = torch.ones(1000)
    for step in range(100_000):
        dist.all_reduce(gradient)
        gradient /= 2
        time.sleep(0.05)
        write_checkpoint(rank, step)


def main():
    begin(__doc__)
    store = "file://" + os.path.join(tempfile.gettempdir(), "store")
    mp.spawn(train, args=(store,), nprocs=2)


if __name__ == "__main__":
    main()
