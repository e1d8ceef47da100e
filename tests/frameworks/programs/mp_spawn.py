"""Two ranks of torch.multiprocessing.spawn that reduce a tensor."""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    for step in range(60):
        total = torch.full((100,), float(rank + step))
        dist.all_reduce(total)
        time.sleep(0.1)
    print("result", rank, total.sum().item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (f"{folder}/store",), nprocs=2)
