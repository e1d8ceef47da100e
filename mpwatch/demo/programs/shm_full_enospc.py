"""Fill `/dev/shm` with batches that are kept, as happens in a container with 64 MiB of it.

The program has a `/dev/shm` of 48 MiB. Every batch takes one MiB of it for as long as it is
referenced; here a replay buffer keeps all batches.
"""

import time
from collections import deque

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended, tiny_shm

SHM_MIB = 48


class Frames(Dataset):
    """One sample is 64 KiB, so that a batch of 16 is 1 MiB."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.full((64, 256), float(index))


def main():
    seconds = begin(__doc__)
    tiny_shm(SHM_MIB)
    until_s = time.monotonic() + seconds
    replay: deque[torch.Tensor] = deque(maxlen=12 if mended() else None)
    for step, frames in enumerate(DataLoader(Frames(), batch_size=16, num_workers=2)):
        replay.append(frames)
        if step == 8:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.7)


if __name__ == "__main__":
    main()
