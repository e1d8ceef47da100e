"""Put a sample that is None into a batch.

The dataset returns None for a file that it cannot read. The default collate function of the
DataLoader cannot make a batch with it, and the worker sends the error to the training loop.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Pictures(Dataset):
    """Pictures, one of which is truncated."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 40:
            return self[index - 1] if mended() else None
        return torch.full((3, 8, 8), float(index))


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(Pictures(), batch_size=8, num_workers=2)
    is_ready = False
    try:
        while time.monotonic() < until_s:
            for _batch in loader:
                if not is_ready:
                    is_ready = True
                    print("ready", flush=True)
                time.sleep(0.1)
    except TypeError as error:
        print(f"cannot make a batch: {str(error).splitlines()[-1].split(': ', 1)[1]}", flush=True)
        time.sleep(max(0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
