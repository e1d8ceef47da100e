"""What the hook costs real work: `python -m tests.benchmarks.hook_jobs [PART ...]`.

Each part is measured with the hook alone, and with an observer connected: `pingpong` (a tiny tensor
there and back through two queues), `tiny` (a DataLoader with two workers and batches of eight
numbers: nothing but overhead), `real` (batches of 16 small pictures that are cropped, turned and
scaled, some ms each) and `usual` (64 of 224 x 224, as image networks are trained with, some tens of
ms). PAIRS is the number of rounds, 20 where it is not set: in each the work is done without
anything, with wrappers that do nothing at the same points, which is the least that any hook in
Python could cost, and with the hook.
"""

from __future__ import annotations

import collections
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .hook_turns import STATES, alternate, apart, cpu_s, load, record_s, records, show, turn

ROUNDS = 300
BLOCKS = 5
"""Blocks of each program for each of PAIRS."""
SETTLE_S = 0.4
"""Seconds of work that are not counted after each turn: attaching the hook and the first messages
of an observer are measured by `hook_cost`."""
AT_REST = 16
"""Batches that are not counted after each turn: in them the turn reaches the workers."""


def _echo(inbox: Any, outbox: Any) -> None:
    """Send tensors back; a text is a state to set in this process, `...` asks for its cpu time."""
    while (item := inbox.get()) is not None:
        if isinstance(item, str):
            turn(item)
        outbox.put(time.process_time() if item is ... else item)


def pingpong() -> list[list[float]]:
    """Seconds and cpu seconds of both processes for a round of a new tensor of four numbers."""
    import torch
    import torch.multiprocessing

    context = torch.multiprocessing.get_context("fork")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=_echo, args=(inbox, outbox))
    child.start()

    def ask(item: Any) -> Any:
        inbox.put(item)
        return outbox.get()

    def turn_both(state: str) -> None:
        turn(state)
        ask(state)
        _settle(lambda: ask(torch.ones(4)))

    def rounds(number: int) -> list[float]:
        times, written = [], records()
        began_cpu = time.process_time() + ask(...)
        for _ in range(number):
            began = time.perf_counter()
            ask(torch.ones(4))
            times.append(time.perf_counter() - began)
        used = time.process_time() + ask(...) - began_cpu
        # A round that another program interrupted shows nothing about the hook, so the wall time is
        # that of the rounds at the first decile.
        return [sorted(times)[number // 10], used / number, 2 * (records() - written) / number]

    rows = alternate(lambda: rounds(ROUNDS), turn_both, BLOCKS)
    turn("bare")
    inbox.put(None)
    child.join()
    return rows


def _settle(work: Callable[[], Any]) -> None:
    began = time.perf_counter()
    while time.perf_counter() - began < SETTLE_S:
        work()


def tiny() -> list[list[float]]:
    """A batch of eight numbers."""
    import torch
    from torch.utils.data import TensorDataset

    return _batches(TensorDataset(torch.arange(8_000)), 8, 300)


def real() -> list[list[float]]:
    """A batch of 16 small pictures."""
    return _batches(pictures(1600), 16, 40)


def usual() -> list[list[float]]:
    """A batch of 64 pictures of the usual size."""
    return _batches(pictures(1600, 224), 64, 10)


def pictures(count: int, side: int = 128) -> Any:
    """A dataset of square pictures in memory, each prepared for training when it is read."""
    import torch
    from torch.utils.data import Dataset

    class Pictures(Dataset[Any]):
        def __init__(self) -> None:
            self.raw = torch.randint(0, 256, (64, 3, side + 32, side + 32), dtype=torch.uint8)
            self.mean, self.deviation = torch.full((3, 1, 1), 0.45), torch.full((3, 1, 1), 0.22)

        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> Any:
            top, left = index * 7 % 32, index * 11 % 32
            picture = self.raw[index % 64, :, top : top + side, left : left + side].float()
            picture = picture.flip(2) if index % 2 else picture
            return (picture / 255 - self.mean) / self.deviation, index % 10

    return Pictures()


class _Plan:
    """Indices for endless batches; an index below zero selects a state."""

    def __init__(self, batch_size: int, size: int) -> None:
        self.turns: collections.deque[str] = collections.deque()
        self._batch_size, self._size = batch_size, size

    def __iter__(self) -> Iterator[list[int]]:
        for first in itertools.count(0, self._batch_size):
            while self.turns:
                yield [~STATES.index(self.turns.popleft())]
            yield [index % self._size for index in range(first, first + self._batch_size)]


class _Turned:
    """A dataset that changes the state of the worker that reads an index below zero."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            turn(STATES[~index])
        return self._data[max(0, index)]


def _batches(data: Any, batch_size: int, count: int) -> list[list[float]]:
    """Seconds and cpu seconds for a batch of a loader with two workers at work, these included.

    It is one epoch, in which main and workers are turned: what a worker was born with, and where
    its memory lies, makes more difference than the hook.
    """
    from torch.utils.data import DataLoader

    # Two workers on one core, which is what this measures on.
    warnings.simplefilter("ignore")
    plan = _Plan(batch_size, len(data))
    loader: Any = DataLoader(
        _Turned(data), batch_sampler=plan, num_workers=2, multiprocessing_context="fork"
    )
    batches: Any = iter(loader)
    pids = [0, *(worker.pid for worker in batches._workers)]

    def take(number: int) -> None:
        for _ in range(number):
            next(batches)

    def block() -> list[float]:
        began_cpu, began, written = cpu_s(pids), time.perf_counter(), records()
        take(count)
        took, used = time.perf_counter() - began, cpu_s(pids) - began_cpu
        each = 2 * (records() - written) / count  # the workers write as many records as main
        return [took / count, used / count, each]

    def turn_all(state: str) -> None:
        turn(state)
        # The DataLoader gives tasks to the workers in turn, so of two tasks in a row each worker
        # gets one.
        plan.turns.extend((state, state))
        take(AT_REST)
        _settle(lambda: take(1))

    rows = alternate(block, turn_all, BLOCKS)
    turn("bare")
    return rows


UNITS = {"pingpong": "round trip"}
PROGRAMS = {"pingpong": pingpong, "tiny": tiny, "real": real, "usual": usual}


def main() -> None:
    parts = sys.argv[1:] or list(PROGRAMS)
    if parts[0].startswith("_"):
        rows = PROGRAMS[parts[0][1:]]()
        print(json.dumps([rows, record_s()]))
        return
    for part in parts:
        for watched in (False, True):
            print(f"{part}, {'watched' if watched else 'the hook alone'}: {load()}")
            show(UNITS.get(part, "batch"), *apart("hook_jobs", f"_{part}", watched))


if __name__ == "__main__":
    main()
