"""Load batches of a thousand tensors of a few numbers each.

Every tensor goes through a shared-memory file and a descriptor of its own, which main fetches from
the worker: that takes as long for eight bytes as for a megabyte.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

SEGMENTS = 32


class Drives(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return [torch.full((2 + n % 5, 2), float(index)) for n in range(SEGMENTS)]


def collate(drives):
    segments = [segment for drive in drives for segment in drive]
    if mended():
        time.sleep(0.05)
        return torch.cat(segments), torch.tensor([len(segment) for segment in segments])
    return segments


def main():
    seconds = begin(__doc__)
    torch.set_num_threads(1)
    until_s = time.monotonic() + seconds
    layer = torch.nn.Linear(2, 16)
    batches = iter(DataLoader(Drives(), batch_size=32, num_workers=2, collate_fn=collate))
    next(batches)
    print("ready", flush=True)
    for batch in batches:
        points = batch[0] if mended() else torch.cat(batch)
        layer(points).pow(2).mean().backward()
        if mended():
            time.sleep(0.05)
        if time.monotonic() > until_s:
            break


if __name__ == "__main__":
    main()
