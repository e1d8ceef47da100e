"""Wait for one slow worker while the others have long finished.

Batches are assigned in turn and returned in order. One worker's part of the data lies on a slow
disk, and the other workers and main wait for it.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from mpwatch.demo.bounds import begin, mended


class Shards(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if get_worker_info().id == 1:
            time.sleep(0.15)
        return torch.full((32,), float(index))


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    as_they_come = {"in_order": False} if mended() else {}
    loader = DataLoader(Shards(), batch_size=8, num_workers=4, **as_they_come)
    for step, _batch in enumerate(loader):
        if step == 8:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.02)


if __name__ == "__main__":
    main()
