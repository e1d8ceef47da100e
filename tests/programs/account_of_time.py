"""Programs that spend known shares of their time on known activities.

    python tests/programs/account_of_time.py loader|locks|threads

`loader`: a batch takes `LOAD_S` to load and `COMPUTE_S` of cpu time in main. `locks`: two processes
take turns with a lock that each holds for `HELD_S`. `threads`: two threads of pure Python.
"""

from __future__ import annotations

import sys
import threading
import time
from multiprocessing.synchronize import Lock

import torch
from torch import multiprocessing
from torch.utils.data import DataLoader, Dataset

LOAD_S = 0.3
COMPUTE_S = 0.05
HELD_S = 0.3


class Slow(Dataset[torch.Tensor]):
    """Samples that take `LOAD_S` to load."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(LOAD_S)
        return torch.zeros(4)


def compute(cpu_s: float) -> None:
    """Use this much cpu time."""
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        sum(range(1000))


def train() -> None:
    """Compute for `COMPUTE_S` a batch."""
    for number, _ in enumerate(DataLoader(Slow(), num_workers=1)):
        if number == 1:
            print("ready", flush=True)
        compute(COMPUTE_S)


def hold(lock: Lock) -> None:
    """Hold a lock for most of the time."""
    while True:
        with lock:
            time.sleep(HELD_S)


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1] == "loader":
        train()
    elif sys.argv[1] == "locks":
        lock = multiprocessing.Lock()
        processes = [multiprocessing.Process(target=hold, args=(lock,)) for _ in range(2)]
        for process in processes:
            process.daemon = True
            process.start()
        print("ready", flush=True)
        for process in processes:
            process.join()
    else:
        other = threading.Thread(target=compute, args=(3600.0,), daemon=True)
        other.start()
        print("ready", flush=True)
        compute(3600.0)


if __name__ == "__main__":
    main()
