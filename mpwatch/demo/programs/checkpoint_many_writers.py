"""Save the checkpoint in every rank, all to the same path.

Each rank truncates the file and writes it from its beginning, over what the others have written: if
their states differ, it has parts of several.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

RANKS = 2
TENSORS = 1500
"""Of four bytes each: they take a third of a second to save, and little space."""


def save(rank, state, path):
    if rank == 0 or not mended():
        torch.save(state, path)
    dist.barrier()


def contents(path):
    try:
        return f"tensors of {len({each.item() for each in torch.load(path)})} ranks"
    except RuntimeError as error:
        return f"damaged: {str(error).splitlines()[0][:60]}"


def train(rank, store, seconds):
    until_s = time.monotonic() + seconds
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    state = [torch.full((1,), rank, dtype=torch.int32) for _ in range(TENSORS)]
    path = os.path.join(tempfile.gettempdir(), "last.pt")
    save(rank, state, path)
    if rank == 0:
        print("ready", flush=True)
        print(f"the checkpoint: {contents(path)}", flush=True)
    is_over = torch.zeros(1)
    while not is_over:
        save(rank, state, path)
        is_over.fill_(time.monotonic() > until_s - 10)
        dist.all_reduce(is_over, op=dist.ReduceOp.MAX)


def main():
    seconds = begin(__doc__)
    store = "file://" + os.path.join(tempfile.gettempdir(), "store")
    mp.spawn(train, args=(store, seconds), nprocs=RANKS)


if __name__ == "__main__":
    main()
