"""Stack samples of different shapes into one batch, in a worker.

The worker stacks them into shared memory of a fixed size. If the first sample of a batch is its
largest, the error is about a storage that is not resizable, and names no shape.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Sentences(Dataset):
    """Sentences as numbers of words; one of them is longer than the others."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        words = torch.full((12 if index == 40 else 10, 16), index)
        return words[:10] if mended() else words


def report_ready():
    print("ready", flush=True)
    return True


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(Sentences(), batch_size=8, num_workers=2)
    ready = False
    try:
        while time.monotonic() < until_s:
            for _batch in loader:
                ready = ready or report_ready()
                time.sleep(0.1)
    except RuntimeError as error:
        print(f"cannot make a batch: {str(error).splitlines()[-1]}", flush=True)
        time.sleep(max(0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
