"""Three ranks over gloo, of which one exits before the others in the way that the first argument
names.

The ranks train for the given seconds first, so that an observer has read all of them.
"""

import os
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

STEP_S = 0.05


def early(values):
    """Rank 1 has fewer batches, and returns."""
    return True


def raises(values):
    """Rank 1 raises an exception of its own."""
    raise ValueError("a label out of range")


def shapes(values):
    """Rank 1 gives a tensor of another size."""
    dist.all_reduce(torch.ones(3))


def killed(values):
    """Rank 1 is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


WAYS = {way.__name__: way for way in (early, raises, shapes, killed)}


def train(rank, store, way, seconds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=3)
    values = torch.ones(1000)
    dist.barrier()
    if rank == 0:
        print("ready", flush=True)
    for _ in range(int(seconds / STEP_S)):
        dist.all_reduce(values)
        values /= 3
        if rank == 2:  # the slowest: the others wait for it in the collective
            time.sleep(STEP_S)
    if rank == 1 and WAYS[way](values):
        return
    while True:
        dist.all_reduce(values)
        values /= 3


def main():
    way, seconds = sys.argv[1], float(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        mp.spawn(train, args=(store, way, seconds), nprocs=3)


if __name__ == "__main__":
    main()
