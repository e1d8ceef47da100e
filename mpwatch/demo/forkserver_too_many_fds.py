"""Start a worker through the fork server with more tensors than it takes at once.

All descriptors travel in one message, which holds 256. No limit of the system has to do with it.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin


class Samples(Dataset):
    def __init__(self):
        self.samples = [torch.full((10,), float(index)) for index in range(300)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(Samples(), num_workers=1, multiprocessing_context="forkserver")
    ready = False
    while time.monotonic() < until_s:
        try:
            iter(loader)
        except ValueError as error:
            print(f"cannot start the loader: {error}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


if __name__ == "__main__":
    main()
