"""Two ranks over gloo that call different collectives after some steps, in the way that the first
argument names.

`--torchrun` has torchrun start them instead of `mp.spawn`. With `--recorder=FOLDER` each rank has a
worker server, and writes what torch's flight recorder holds to a file when it is asked to.
"""

import os
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

STEPS = 5
FOREVER_S = 600.0


def backward(rank, step, evens):
    """Rank 1 gathers a metric after its last batch; rank 0 has one batch more."""
    if rank == 0:
        step()
    else:
        dist.all_gather([torch.zeros(1), torch.zeros(1)], torch.ones(1))


def operations(rank, step, evens):
    """Rank 0 averages a loss, rank 1 sends its weights."""
    if rank == 0:
        dist.all_reduce(torch.ones(7))
    else:
        dist.broadcast(torch.ones(7), src=0)
        dist.barrier()


def groups(rank, step, evens):
    """The ranks use their two groups in a different order."""
    for group in (None, evens) if rank == 0 else (evens, None):
        dist.barrier(group=group)


def new_groups(rank, step, evens):
    """The ranks make the same two groups in a different order."""
    for ranks in ([0], [0, 1]) if rank == 0 else ([0, 1], [0]):
        dist.new_group(ranks)
    dist.barrier()


def checkpoint(rank, step, evens):
    """Rank 0 writes a checkpoint to a slow file system; rank 1 is at the barrier after it."""
    if rank == 0:
        time.sleep(FOREVER_S)
    dist.barrier()


def validation(rank, step, evens):
    """Rank 0 validates for some minutes; rank 1 is at the barrier after it."""
    until_s = time.monotonic() + FOREVER_S
    while rank == 0 and time.monotonic() < until_s:
        torch.ones(200, 200).matmul(torch.ones(200, 200))
    dist.barrier()


WAYS = {
    way.__name__: way for way in (backward, operations, groups, new_groups, checkpoint, validation)
}


servers: list[object] = []
"""A worker server ends with its last reference."""


def record(rank, folder):
    """Make the worker server of a rank, and its file once there is a file named `write`."""
    servers.append(c10d._WorkerServer(f"{folder}/rank_{rank}.sock"))

    def write():
        while not os.path.exists(f"{folder}/write"):
            time.sleep(0.2)
        with open(f"{folder}/unfinished_{rank}", "wb") as file:
            file.write(c10d._dump_fr_trace())  # type: ignore[attr-defined, unused-ignore]
        os.replace(f"{folder}/unfinished_{rank}", f"{folder}/dumps/trace_rank_{rank}")

    threading.Thread(target=write, daemon=True).start()


def train(rank, way):
    torch.set_num_threads(1)
    for argument in sys.argv:
        if argument.startswith("--recorder="):
            record(rank, argument.partition("=")[2])
    evens = dist.new_group([0, 1])
    model = DistributedDataParallel(nn.Linear(64, 8))

    def step():
        model(torch.randn(32, 64)).square().mean().backward()

    for _ in range(STEPS):
        step()
        time.sleep(0.05)
    if rank == 0:
        print("ready", flush=True)
    WAYS[way](rank, step, evens)
    time.sleep(FOREVER_S)


def spawned(rank, store, way):
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    train(rank, way)


def main():
    way = sys.argv[1]
    if "--torchrun" in sys.argv:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        script = [os.path.abspath(__file__), way]
        os.execv(sys.executable, [*torchrun, "--nproc-per-node=2", *script])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(spawned, args=(f"file://{folder}/store", way), nprocs=2)


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        train(dist.get_rank(), sys.argv[1])
    else:
        main()
