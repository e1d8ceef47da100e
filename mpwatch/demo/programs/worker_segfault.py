"""Crash in native code in a worker.

A decoder follows a null pointer on one damaged sample. The main process learns only that a worker
exited.
"""

import ctypes
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

DAMAGED_SAMPLE = 600


class Pictures(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.02)
        if index == DAMAGED_SAMPLE and not mended():
            ctypes.string_at(0)
        return torch.tensor(float(index))


def main():
    begin(__doc__)
    for step, _batch in enumerate(DataLoader(Pictures(), batch_size=8, num_workers=2)):
        if step == 4:
            print("ready", flush=True)
        if mended():
            time.sleep(0.1)


if __name__ == "__main__":
    main()
