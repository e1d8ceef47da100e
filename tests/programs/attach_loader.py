"""Loads batches with worker processes for ever; the sum of every epoch is the same."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((256,), index)


if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    sum(int(batch.sum()) for batch in loader)
    print("ready", flush=True)
    while True:
        print(sum(int(batch.sum()) for batch in loader), flush=True)
        sys.stdout.flush()
