"""Read in all workers from a file that was opened before they were forked.

They share one open file with one position: between the seek and the read of one worker, another
worker moves the position.
"""

import os
import struct
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

SAMPLES = 4000


class Records(Dataset):
    """A record is eight bytes, its own number."""

    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)  # noqa: SIM115 - kept open is the point

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if not mended():
            self.file.seek(8 * index)
        time.sleep(0.0005)
        record = os.pread(self.file.fileno(), 8, 8 * index) if mended() else self.file.read(8)
        value = struct.unpack("q", record)[0] if len(record) == 8 else -1
        return torch.tensor([index, value])


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    path = os.path.join(tempfile.gettempdir(), "records")
    with open(path, "wb") as file:
        file.write(struct.pack(f"{SAMPLES}q", *range(SAMPLES)))
    loader = DataLoader(
        Records(path), batch_size=100, shuffle=True, num_workers=2, persistent_workers=True
    )
    epoch = 0
    while time.monotonic() < until_s:
        wrong = 0
        for batch in loader:
            wrong += (batch[:, 0] != batch[:, 1]).sum().item()
            time.sleep(0.1)
        epoch += 1
        print(f"epoch {epoch}: {wrong} of {SAMPLES} records wrong", flush=True)
        if epoch == 1:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
