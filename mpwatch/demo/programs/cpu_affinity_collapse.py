"""Run all workers on one core, because the process that started them was bound to it.

A launcher or an OpenMP runtime has bound the main process to one core. Workers inherit that and
share the core.
"""

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Features(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        values = torch.full((64, 64), float(index))
        for _ in range(40):
            values = values @ values
            values /= values.max()
        return values.sum()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    if not mended():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for step, _batch in enumerate(DataLoader(Features(), batch_size=16, num_workers=3)):
        if step == 8:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        if mended():
            time.sleep(0.1)  # the trainer limits the speed


if __name__ == "__main__":
    main()
