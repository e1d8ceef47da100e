"""Start a worker through the fork server with more tensors than it accepts.

All descriptors are sent in one message, which holds at most 256. No limit of the system is
involved.
"""

import functools
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Samples(Dataset):
    def __init__(self):
        samples = [torch.full((10,), float(index)) for index in range(300)]
        self.samples = torch.stack(samples) if mended() else samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


@functools.cache
def report_ready():
    print("ready", flush=True)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(Samples(), num_workers=1, multiprocessing_context="forkserver")
    while time.monotonic() < until_s:
        try:
            for _batch in loader:
                report_ready()
                time.sleep(0.1)
        except ValueError as error:
            print(f"cannot start the loader: {error}", flush=True)
        report_ready()
        time.sleep(2)


if __name__ == "__main__":
    main()
