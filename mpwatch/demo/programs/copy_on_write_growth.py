"""Read a large list of Python objects in forked workers.

Nobody writes to it, but reading an object counts a reference, which is stored beside it: page by
page the list stops being shared. The resident size stays as it is, the private part grows.
"""

import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

SAMPLES = 400_000


class Annotations(Dataset):
    """A file name and a box for each sample, as strings and tuples; about 80 MiB."""

    def __init__(self):
        self.entries = [
            (f"images/train/{index:012d}.jpg", (float(index), index / 2))
            for index in range(SAMPLES)
        ]
        if mended():
            self.entries = np.array(self.entries, dtype="U40,(2,)f8")

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        name, box = self.entries[index]
        time.sleep(0.0001)
        return torch.tensor([len(name), *box])


def main():
    seconds = begin(__doc__)
    loader = DataLoader(Annotations(), batch_size=256, shuffle=True, num_workers=2)
    until_s = time.monotonic() + seconds
    for step, _batch in enumerate(loader):
        if step == 4:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.1)


if __name__ == "__main__":
    main()
