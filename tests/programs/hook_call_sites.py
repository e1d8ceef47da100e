"""Shared memory made in four places: `hook_call_sites.py METHOD`, until its input ends."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset, default_collate

import mpwatch


class Noise(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((300,), float(index))


def collate(samples: list[torch.Tensor]) -> Any:
    return default_collate(samples)  # the line


def main() -> None:
    mpwatch.instrument()
    kept: list[Any] = [torch.zeros(1000).share_memory_()]
    queue = torch.multiprocessing.SimpleQueue()
    queue.put(kept[0])
    for function in (None, collate):
        loader = DataLoader(
            Noise(),
            batch_size=4,
            num_workers=1,
            multiprocessing_context=sys.argv[1],
            persistent_workers=True,
            collate_fn=function,
        )
        batches = iter(loader)
        kept += [batches, next(batches)]
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
