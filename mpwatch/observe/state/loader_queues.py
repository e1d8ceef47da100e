"""What each DataLoader worker has before it and behind it, from the records of main and worker.

Main's hook tells which batch it hands to which worker and which it has delivered; the worker's hook
tells what it has begun and finished. Neither knows the other's side.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process

FETCHES_REMEMBERED = 64
"""Batches of one worker; torch hands out `prefetch_factor` ahead, 2 unless told otherwise."""


class HandedOut(NamedTuple):
    """A batch that main wants of a worker and has not delivered yet."""

    worker: int
    at_ns: int


class BatchBook:
    """The side of one process: what it handed out as main, and what it did as a worker."""

    def __init__(self) -> None:
        self._handed: dict[int, dict[int, HandedOut]] = {}
        self._delivered: dict[int, int] = {}
        self._unordered: set[int] = set()
        self._by_pid: dict[int, int] = {}
        self._begun_ns: OrderedDict[int, int] = OrderedDict()
        self._finished_ns: OrderedDict[int, int] = OrderedDict()

    def add(self, event: HookEvent) -> None:
        """Follow one record; kinds that are not of loaders are ignored."""
        kind = event.kind
        if kind == wire.LOADER_PUT_INDEX:
            handed = self._handed.setdefault(event.key, {})
            handed[event.aux] = HandedOut(event.key2, event.at_ns)
        elif kind == wire.LOADER_NEXT:
            self._deliver(event.key, event.aux)
        elif kind in (wire.LOADER_START, wire.LOADER_STOP):
            self._handed.pop(event.key, None)
            self._delivered.pop(event.key, None)
        elif kind == wire.LOADER_FETCH_BEGIN:
            _remember(self._begun_ns, event)
        elif kind == wire.LOADER_FETCH:
            _remember(self._finished_ns, event)

    def _deliver(self, loader: int, batch: int) -> None:
        """Batches come in order: with this one everything before it is done with, too."""
        if self._delivered.get(loader, -1) >= batch:
            # With `in_order=False` (torch >= 2.6) the count stands still while others are taken.
            self._unordered.add(loader)
        self._delivered[loader] = batch
        handed = self._handed.get(loader, {})
        while handed and (oldest := next(iter(handed))) <= batch:
            del handed[oldest]

    def read(self, loaders: object) -> None:
        """Take over which workers each loader has, from the gauge `loaders`."""
        self._by_pid = {}
        for reading in loaders if isinstance(loaders, list) else ():
            if not isinstance(reading, Mapping):
                continue
            key, pids = (reading.get(name) for name in ("key", "pids"))
            if isinstance(key, int) and isinstance(pids, list):
                self._by_pid.update((pid, key) for pid in pids if isinstance(pid, int))

    def loader_of(self, worker: ProcessId) -> int | None:
        """The loader that has this worker, or the only one there is.

        In another pid namespace the process itself counts pids differently.
        """
        only = next(iter(self._handed)) if len(self._handed) == 1 else None
        return self._by_pid.get(worker.pid, only)

    def is_ordered(self, loader: int) -> bool:
        """Whether batches are taken in the order they were handed out, as far as was seen."""
        return loader not in self._unordered

    def handed_to(self, loader: int, worker: int) -> dict[int, HandedOut]:
        """What a worker still owes, by batch."""
        handed = self._handed.get(loader, {})
        return {batch: each for batch, each in handed.items() if each.worker == worker}

    def has_begun(self, batch: int, handed: HandedOut) -> bool:
        """Whether this worker has begun or finished a batch since it was handed out."""
        return _since(self._begun_ns, batch, handed) or self.has_finished(batch, handed)

    def has_finished(self, batch: int, handed: HandedOut) -> bool:
        """Whether this worker has finished a batch since it was handed out."""
        return _since(self._finished_ns, batch, handed)


def _remember(times: OrderedDict[int, int], event: HookEvent) -> None:
    times[event.aux] = event.at_ns
    times.move_to_end(event.aux)
    if len(times) > FETCHES_REMEMBERED:
        times.popitem(last=False)


def _since(times: Mapping[int, int], batch: int, handed: HandedOut) -> bool:
    # Every epoch of persistent workers counts its batches from zero again.
    return times.get(batch, -1) >= handed.at_ns


def standing(
    main: BatchBook, worker: BatchBook, loader: int, number: int
) -> tuple[int, int | None]:
    """Batches a worker has not begun, and batches it has finished that main has not taken.

    The second is `None` where batches are taken as they come: which were taken is not told then.
    """
    handed = main.handed_to(loader, number)
    queued = sum(not worker.has_begun(batch, each) for batch, each in handed.items())
    parked = sum(worker.has_finished(batch, each) for batch, each in handed.items())
    return queued, parked if main.is_ordered(loader) else None


def with_queues(
    processes: Sequence[Process], books: Mapping[ProcessId, BatchBook]
) -> list[Process]:
    """The processes, the loader workers among them with what they have before and behind them."""
    return [_with_queue(process, books) for process in processes]


def _with_queue(process: Process, books: Mapping[ProcessId, BatchBook]) -> Process:
    load = process.loader
    main = books.get(process.parent) if process.parent is not None else None
    own = books.get(process.process)
    if load is None or load.worker_id is None or main is None or own is None or process.is_gone:
        return process
    # A hook that came in after the worker's birth does not know whose worker it is.
    loader = load.loader or main.loader_of(process.process)
    if loader is None:
        return process
    queued, parked = standing(main, own, loader, load.worker_id)
    told = replace(load, loader=loader, queued=queued, parked=parked)
    return replace(process, loader=told)
