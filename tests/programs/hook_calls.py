"""Counts calls and records of the hook for a batch of a DataLoader: one JSON line for each process.

Calls of the hook's own functions are counted by a profiler in the interpreter, records by their
numbers; both per batch, without the first batches and the end.
"""

from __future__ import annotations

import collections
import json
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import mpwatch
from mpwatch import hook

BATCHES = 256
WARM_UP = 16
"""Batches that are not counted: in them threads start, and the first lines are noted."""


class Counter:
    """Counts the hook's functions called in this thread, and its records, from `start` on."""

    def __init__(self) -> None:
        session = hook.current()
        assert session is not None
        self._session = session
        self.calls: collections.Counter[str] = collections.Counter()
        self._first = session.ring.handed_out()
        sys.setprofile(self._see)

    def _see(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/mpwatch/hook/" in frame.f_code.co_filename:
            self.calls[frame.f_code.co_name] += 1

    def tell(self, who: str, batches: int) -> None:
        sys.setprofile(None)
        records = self._session.ring.handed_out() - self._first
        each = {name: round(count / batches, 2) for name, count in self.calls.items()}
        row = json.dumps({"who": who, "records": records / batches, "calls": each})
        # The other process writes at the same time: `print` would write the end of the line apart.
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()


class Counting(TensorDataset):
    """Counts in the worker from the end of its first batches until its last."""

    counter: Counter | None = None

    def __getitem__(self, index: int) -> Any:
        if index == 4 * WARM_UP:
            self.counter = Counter()
        elif index == 4 * (BATCHES - 1) and self.counter is not None:
            self.counter.tell("worker", BATCHES - 1 - WARM_UP)
        return super().__getitem__(index)


def main() -> None:
    mpwatch.instrument()
    data = Counting(torch.arange(4 * BATCHES))
    loader = DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="fork")
    batches = iter(loader)
    for _ in range(WARM_UP):
        next(batches)
    counter = Counter()
    for _ in range(BATCHES - WARM_UP - 4):  # while tasks are still handed out
        next(batches)
    counter.tell("main", BATCHES - WARM_UP - 4)
    for _ in batches:
        continue


if __name__ == "__main__":
    main()
