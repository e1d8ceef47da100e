"""Create a new iterator each time the validation data is read, and keep them all.

Each iterator has its own workers, threads and pipes. A reference keeps the old ones alive: here a
list of results, elsewhere a generator or a traceback.
"""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended

MOST = 10


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(TensorDataset(torch.arange(10_000.0)), batch_size=8, num_workers=1)
    looks: list[tuple[object, object]] = []
    while time.monotonic() < until_s:
        if len(looks) < MOST:
            batches = iter(loader)
            looks.append((next(batches), None if mended() else batches))
        if len(looks) == 3:
            print("ready", flush=True)
        time.sleep(2)


if __name__ == "__main__":
    main()
