"""End a worker with `os._exit` in the middle of an epoch.

A dataset calls a tool that ends the process when its licence has expired. There is no exception and
no signal, only an exit code.
"""

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

LAST_SAMPLE = 600


class Licensed(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.02)
        if index == LAST_SAMPLE and not mended():
            os._exit(3)
        return torch.tensor(float(index))


def main():
    begin(__doc__)
    for step, _batch in enumerate(DataLoader(Licensed(), batch_size=8, num_workers=2)):
        if step == 4:
            print("ready", flush=True)
        if mended():
            time.sleep(0.1)


if __name__ == "__main__":
    main()
