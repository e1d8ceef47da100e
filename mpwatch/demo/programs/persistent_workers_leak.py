"""Cache decoded samples in workers that live as long as the training.

Each worker has its own cache and never removes a sample from it, so that in the end each holds the
whole dataset.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

MOST = 1200
LARGEST_CACHE = 80


class Cached(Dataset):
    """A sample takes an eighth of a MiB."""

    def __init__(self):
        self.decoded = {}

    def __len__(self):
        return MOST

    def __getitem__(self, index):
        if index not in self.decoded:
            time.sleep(0.01)
            if mended() and len(self.decoded) >= LARGEST_CACHE:
                self.decoded.pop(next(iter(self.decoded)))
            self.decoded[index] = torch.full((1 << 15,), float(index)).clone()
        return self.decoded[index][:16].clone()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(
        Cached(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True
    )
    step = 0
    while time.monotonic() < until_s:
        for _batch in loader:
            step += 1
            if step == 8:
                print("ready", flush=True)
            if time.monotonic() > until_s:
                break
            time.sleep(0.1)


if __name__ == "__main__":
    main()
