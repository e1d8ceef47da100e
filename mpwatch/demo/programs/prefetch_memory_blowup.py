"""Prefetch far more than is needed.

Each worker may be twenty batches ahead of a slow trainer, and every batch that waits takes space in
shared memory: 2 workers x 20 batches x 4 MiB.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Volumes(Dataset):
    """A sample takes one MiB as float32, where uint8 would be enough."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.full((64, 64, 64), float(index))


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(
        Volumes(), batch_size=4, num_workers=2, prefetch_factor=2 if mended() else 20
    )
    for step, _batch in enumerate(loader):
        if step == 2:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(1)


if __name__ == "__main__":
    main()
