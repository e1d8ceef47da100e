"""Two ranks of torch.multiprocessing.spawn that reduce a tensor; `failing`: one stops earlier."""

import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    is_short = "failing" in sys.argv and rank == 1
    for step in range(20 if is_short else 80):
        total = torch.full((100,), float(rank + step))
        dist.all_reduce(total)
        time.sleep(0.1)
    if is_short:
        print("fault", flush=True)
        evaluate()
    print("result", rank, total.sum().item(), flush=True)
    dist.destroy_process_group()


def evaluate():
    time.sleep(100)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (f"{folder}/store",), nprocs=2)
