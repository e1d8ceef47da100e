"""Two ranks of NCCL on one GPU: `nccl_ranks.py [late|mismatch|uneven|heavy]`.

    late      rank 1 stops at a line of its own after some steps
    mismatch  rank 1 calls one more collective
    uneven    DistributedDataParallel, where rank 1 has fewer batches
    heavy     DistributedDataParallel, steps of a second, nothing wrong

NCCL refuses two ranks of one machine on one GPU. With a name of a machine for each
(`NCCL_HOSTID`), they talk through sockets.
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

STEP = 20
CYCLES_A_SECOND = 1_900_000_000


def reduce_gradients(rank, what):
    gradient = torch.ones(1000, device="cuda")
    for step in range(1_000_000):
        if step == STEP and rank == 1 and what == "late":
            prepare_batch()
        if step == STEP and rank == 1 and what == "mismatch":
            dist.broadcast(gradient, 0)
        dist.all_reduce(gradient)
        gradient /= 2
        torch.cuda.synchronize()
        report(step)
        time.sleep(0.05)


def prepare_batch():
    time.sleep(1000)


def train(rank, what):
    model = DistributedDataParallel(torch.nn.Linear(512, 512).to("cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = STEP if what == "uneven" and rank == 1 else 1_000_000
    for step in range(batches):
        loss = model(torch.ones(64, 512, device="cuda")).square().mean()
        if what == "heavy":
            torch.cuda._sleep(CYCLES_A_SECOND)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.item()
        report(step, mean)
    validate(model)


def validate(model):
    while True:
        model(torch.ones(64, 512, device="cuda")).square().mean().item()
        time.sleep(1)


def report(step, loss=0.0):
    if step == 5:
        print("ready", flush=True)
    assert loss == loss


def rank_main(rank, what, store):
    os.environ["NCCL_HOSTID"] = f"machine-{rank}"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=2)
    work = train if what in ("uneven", "heavy") else reduce_gradients
    work(rank, what)


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    os.environ["NCCL_IB_DISABLE"] = "1"
    store = "file://" + os.path.join(tempfile.mkdtemp(), "store")
    mp.spawn(rank_main, args=(what, store), nprocs=2)


if __name__ == "__main__":
    main()
