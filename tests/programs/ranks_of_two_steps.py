"""Two ranks over gloo of which one has resumed from a checkpoint: `ranks_of_two_steps.py WAY`.

`counter`: it counts its steps from 50 on, so that it evaluates while the other one trains. `file`:
it waits for the other one after it has loaded, and that one has found nothing to load.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class State:
    def __init__(self, step):
        self.step = step


class Trainer:
    def __init__(self, saved):
        self.state = State(0 if saved is None else saved["step"])
        self.every = 100

    def fit(self, saved):
        if saved is not None and len(saved) > 1:
            dist.barrier()
        while self.state.step < 10_000:
            dist.all_reduce(torch.ones(7))
            self.state.step += 1
            self.evaluate()

    def evaluate(self):
        if self.state.step % self.every:
            return
        gathered = [torch.zeros(1) for _ in range(2)]
        dist.all_gather(gathered, torch.ones(1))


def run(rank, way, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    saved: dict[str, object] | None = {"step": 50} if rank == 0 else None
    if way == "file" and saved is not None:
        saved["secret"] = "of the program"
    if rank == 0:
        print("ready", flush=True)
    Trainer(saved).fit(saved)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        mp.spawn(run, args=(sys.argv[1], os.path.abspath(made)), nprocs=2)
