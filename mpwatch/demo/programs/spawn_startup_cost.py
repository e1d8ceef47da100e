"""Start new spawned workers for each of many short epochs.

Every worker imports torch again: seconds of start-up for a fraction of a second of work.
`persistent_workers=True` would do that once.
"""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    data = TensorDataset(torch.arange(60.0))
    loader = DataLoader(
        data,
        batch_size=10,
        num_workers=2,
        persistent_workers=mended(),
        multiprocessing_context="spawn",
    )
    epoch = 0
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        for _batch in loader:
            time.sleep(0.02)
        epoch += 1
        print(f"epoch {epoch} took {time.monotonic() - began_s:.1f} s", flush=True)
        if epoch == 1:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
