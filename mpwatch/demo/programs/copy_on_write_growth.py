"""Read a large list of Python objects in forked workers.

No process writes to the list, but reading an object changes its reference count, which is stored in
the object: page by page the list is copied. Resident memory stays the same, private memory grows.
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
