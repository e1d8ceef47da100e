"""DistributedDataParallel on two ranks over gloo, under `mp.spawn` or under torchrun."""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mpwatch.demo.bounds import begin


def train(until_s: float) -> None:
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    over = torch.zeros(1)
    step = 0
    while not over:
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        step += 1
        if step == 20 and dist.get_rank() == 0:
            print("ready", flush=True)
        over.fill_(time.monotonic() > until_s)
        dist.all_reduce(over)  # all ranks end after the same step
    dist.destroy_process_group()


def spawned(rank: int, store: str, until_s: float) -> None:
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    train(until_s)


def main() -> None:
    under_torchrun = "--torchrun" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--torchrun"]
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    if under_torchrun:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        script = [os.path.abspath(__file__), str(until_s)]
        os.execv(sys.executable, [*torchrun, "--nproc-per-node=2", *script])
    store = "file://" + os.path.join(tempfile.gettempdir(), "store")
    mp.spawn(spawned, args=(store, until_s), nprocs=2)


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        train(float(sys.argv[1]))
    else:
        main()
