"""One of several gloo ranks that work in steps; ranks SLOW (`2` or `2,3`) wait for their input.

With HOOKED they have the hook, and a worker each that loads their batches."""

import os
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


def slow_input():
    time.sleep(0.5)


def compute(seconds):
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gradient = torch.ones(1000)
    print("ready", flush=True)
    for _ in DataLoader(range(1_000_000), num_workers=int(os.environ.get("HOOKED") or 0)):
        compute(0.02)
        if os.environ["RANK"] in os.environ["SLOW"].split(","):
            slow_input()
        dist.all_reduce(gradient)


if __name__ == "__main__":
    if os.environ.get("HOOKED"):
        import mpwatch

        mpwatch.instrument()
    main()
