"""Leave a debugging setting on that checks each collective before it is called.

With TORCH_DISTRIBUTED_DEBUG=DETAIL the ranks compare the shapes of each collective in two more
collectives: a loop of small ones takes several times as long.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def train(rank, store, seconds):
    until_s = time.monotonic() + seconds
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    values = torch.ones(1000)
    dist.all_reduce(values)
    began_s = time.monotonic()
    for _ in range(100):
        dist.all_reduce(values)
    if rank == 0:
        took_ms = (time.monotonic() - began_s) * 10
        checked = "checked" if os.environ.get("TORCH_DISTRIBUTED_DEBUG") else "plain"
        print(f"{checked} collectives take {took_ms:.1f} ms each", flush=True)
        print("ready", flush=True)
    is_over = torch.zeros(1)
    while not is_over:
        is_over.fill_(time.monotonic() > until_s - 5)
        dist.all_reduce(is_over)
        time.sleep(0.01)


def main():
    seconds = begin(__doc__)
    if not mended():
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    store = "file://" + os.path.join(tempfile.gettempdir(), "store")
    mp.spawn(train, args=(store, seconds), nprocs=2)


if __name__ == "__main__":
    main()
