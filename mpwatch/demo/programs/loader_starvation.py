"""Train faster than the workers can load.

A step takes 10 ms, a batch takes a worker 300 ms: the main process waits most of the time.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Documents(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.0002 if mended() else 0.02)  # in place of decoding
        return torch.full((32,), float(index % 7))


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    model = nn.Linear(32, 32)
    for step, batch in enumerate(DataLoader(Documents(), batch_size=16, num_workers=2)):
        model(batch).square().mean().backward()
        time.sleep(0.01)
        if step == 8:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break


if __name__ == "__main__":
    main()
