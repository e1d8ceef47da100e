"""Start workers until the container allows no further process or thread.

The program puts itself into a cgroup for 40 processes and threads. Each DataLoader is small, but
all of them are kept.
"""

import time
from collections import deque

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended, small_cgroup

LIMIT = 40


def main():
    seconds = begin(__doc__)
    small_cgroup("pids", LIMIT)
    until_s = time.monotonic() + seconds
    data = TensorDataset(torch.arange(1000.0))
    tasks: deque[object] = deque(maxlen=3 if mended() else None)
    while time.monotonic() < until_s:
        loader = DataLoader(data, num_workers=1, persistent_workers=True)
        try:
            tasks.append((loader, iter(loader)))
        except (BlockingIOError, RuntimeError) as error:
            print(f"cannot add task {len(tasks)}: {error}", flush=True)
        if len(tasks) >= 3:
            print("ready", flush=True)
        time.sleep(2.5)


if __name__ == "__main__":
    main()
