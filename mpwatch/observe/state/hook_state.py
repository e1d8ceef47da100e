"""What the hook of one process has reported so far, and its DataLoader queues."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges, HookHello, HookNote, HookSlice, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import GpuUse, Hook, Loader, Process, SharedCache, WorkerLoad
from mpwatch.observe.state.event_log import ReceivedNotes
from mpwatch.observe.state.flows import quantile

FETCHES_KEPT = 256
RECENT_SHOWN = 30
WAIT_WINDOW_NS = 60_000_000_000

_NOT_CACHED = wire.FLAG_EMPTY | wire.FLAG_RAISED


class HookLedger:
    """Adds up hello, records, notes and gauges of one process."""

    def __init__(self, process: ProcessId) -> None:
        self.process = process
        self.status: HookStatus | None = None
        self.hello: HookHello | None = None
        self.gauges: Mapping[str, Any] = {}
        self.gauges_at_s: float | None = None
        self.allocator_at_s: float | None = None
        self.strategy: str | None = None
        self.is_cuda_initialised = False
        self._events = 0
        self._lost = 0
        self._lost_notes = 0
        self._lost_before = 0
        self._lost_notes_before = 0
        self._cache_entries: int | None = None
        self._fetching: HookEvent | None = None
        self._worker_id: int | None = None
        self._fetched = 0
        self._fetch_ns: deque[int] = deque(maxlen=FETCHES_KEPT)
        self._waits: deque[tuple[int, int]] = deque()
        self._first_next_ns: int | None = None
        self._batches: dict[int, int] = {}
        self._last_next: dict[int, HookEvent] = {}
        self.batches = BatchBook()
        self._notes = ReceivedNotes()
        self._newest: HookEvent | None = None

    def add_status(self, status: HookStatus) -> None:
        """Note a change of state."""
        self.status = status

    def add_hello(self, hello: HookHello) -> None:
        """Note who the hook is; another one than before counts what is lost from 0 again."""
        if self.hello is not None and self.hello.since_ns != hello.since_ns:
            self._lost_before += self._lost
            self._lost_notes_before += self._lost_notes
            self._lost = self._lost_notes = 0
            self._notes.restart()
            self._newest = None
        self.hello = hello
        strategy = hello.data.get("strategy")
        if isinstance(strategy, str):
            self.strategy = strategy

    def add_gauges(self, gauges: HookGauges) -> None:
        """Replace the last readings; those that are read on request only stay until the next."""
        if _ALLOCATOR in gauges.data:
            self.allocator_at_s = gauges.at_s
            self.gauges = gauges.data
        elif _ALLOCATOR in self.gauges:
            self.gauges = {**gauges.data, _ALLOCATOR: self.gauges[_ALLOCATOR]}
        else:
            self.gauges = gauges.data
        self.gauges_at_s = gauges.at_s
        self.batches.read(gauges.data.get("loaders"))
        strategy = gauges.data.get("strategy")
        if isinstance(strategy, str):
            self.strategy = strategy

    def add_note(self, note: HookNote) -> bool:
        """Take from a note what changes the process; `False` if it was received before."""
        if not self._notes.add(note):
            return False
        self._lost_notes = max(self._lost_notes, note.lost)
        if note.kind == "cuda-init":
            self.is_cuda_initialised = True
        return True

    def add_slice(self, part: HookSlice) -> tuple[HookEvent, ...]:
        """Count records, follow what loaders do, and return the records not received before."""
        events, newest = part.events, self._newest
        if newest is not None and events and events[0].sequence <= newest.sequence:
            # Numbers from 0 on with a later time are those of another hook whose hello was lost.
            events = tuple(
                event
                for event in events
                if event.sequence > newest.sequence or event.at_ns > newest.at_ns
            )
        if events:
            self._newest = events[-1]
        self._events += len(events)
        self._lost = max(self._lost, part.lost)
        for event in events:
            self._follow(event)
        return events

    def _follow(self, event: HookEvent) -> None:
        kind = event.kind
        self.batches.add(event)
        if kind == wire.LOADER_FETCH_BEGIN:
            self._fetching = event
            self._worker_id = event.key2
        elif kind == wire.LOADER_FETCH:
            self._fetching = None
            self._worker_id = event.key2
            self._fetched += 1
            self._fetch_ns.append(event.duration_ns)
        elif kind == wire.LOADER_NEXT:
            self._add_wait(event)
        elif kind == wire.CACHE_SWEEP or (kind == wire.SHARE and not event.flags & _NOT_CACHED):
            self._cache_entries = event.aux
        elif kind == wire.CUDA_INIT:
            self.is_cuda_initialised = True

    def _add_wait(self, event: HookEvent) -> None:
        if self._first_next_ns is None:
            self._first_next_ns = event.at_ns - event.duration_ns
        self._waits.append((event.at_ns, event.duration_ns))
        self._batches[event.key] = self._batches.get(event.key, 0) + 1
        self._last_next[event.key] = event
        while self._waits and self._waits[0][0] < event.at_ns - WAIT_WINDOW_NS:
            self._waits.popleft()

    def hook(self) -> Hook:
        """State and counts of the hook."""
        status, hello = self.status, self.hello
        own = _mapping(self.gauges.get("own"))
        lost_notes = self._lost_notes_before + self._lost_notes
        return Hook(
            state="absent" if status is None else status.state,
            reason="" if status is None else status.reason,
            events=self._events,
            lost=self._lost_before + self._lost + lost_notes,
            lost_notes=lost_notes,
            torch=hello.torch if hello else None,
            python=hello.python if hello else None,
            missing=hello.missing if hello else {},
            own_cost_ns=_integer(own.get("cpu_ns")),
            own_calls_ns=_calls_ns(own),
        )

    def start_method(self) -> str | None:
        """How the process was started or starts its own, as the hello says."""
        value = self.hello.data.get("start_method") if self.hello else None
        return value if isinstance(value, str) else None

    def shared_cache(self) -> SharedCache | None:
        """SharedCache of the process; `None` if nothing was ever heard of it."""
        reading = _mapping(self.gauges.get("shared_cache"))
        entries = _integer(reading.get("entries"))
        if entries is not None:
            limit, expired = _integer(reading.get("limit")), _integer(reading.get("expired"))
            return SharedCache(entries, limit, expired)
        return None if self._cache_entries is None else SharedCache(self._cache_entries)

    def worker_load(self, now_ns: int) -> WorkerLoad | None:
        """What the process does as a DataLoader worker; `None` if it never fetched."""
        reading = _mapping(self.gauges.get("worker"))
        worker_id = _first(self._worker_id, _integer(reading.get("worker_id")))
        if worker_id is None:
            return None
        ordered = sorted(self._fetch_ns)
        fetching = self._fetching
        is_same_task = fetching is not None and reading.get("task") == fetching.aux
        index = reading.get("index") if is_same_task else None
        return WorkerLoad(
            worker_id=worker_id,
            loader=_integer(reading.get("loader")),
            fetched=self._fetched,
            fetch_p50_s=quantile(ordered, 0.50),
            fetch_p99_s=quantile(ordered, 0.99),
            recent_s=tuple(ns / 1e9 for ns in list(self._fetch_ns)[-RECENT_SHOWN:]),
            task=fetching.aux if fetching else None,
            task_since_s=max(0, now_ns - fetching.at_ns) / 1e9 if fetching else None,
            index=None if index is None else str(index),
        )

    def loaders(self, now_ns: int) -> tuple[Loader, ...]:
        """The live DataLoader iterators of the process, from its gauges."""
        readings = self.gauges.get("loaders")
        if not isinstance(readings, list):
            return ()
        return tuple(self._loader(reading, now_ns) for reading in map(_mapping, readings))

    def _loader(self, reading: Mapping[str, Any], now_ns: int) -> Loader:
        key = _integer(reading.get("key")) or 0
        since_ns = _integer(reading.get("waiting_since_ns"))
        next_task = _integer(reading.get("rcvd"))
        last = self._last_next.get(key)
        if last is not None and since_ns is not None and last.at_ns >= since_ns:
            # The wait that was read has ended since: the record is newer than the reading.
            since_ns = None
            next_task = None if next_task is None else max(next_task, last.aux + 1)
        return Loader(
            process=self.process,
            key=key,
            workers=_integer(reading.get("workers")) or 0,
            prefetch=_integer(reading.get("prefetch")),
            next_task=next_task,
            sent_task=_integer(reading.get("sent")),
            outstanding=_integer(reading.get("outstanding")),
            parked=_integer(reading.get("parked")),
            owner_worker=_integer(reading.get("owner")),
            wait_share=self.wait_share(now_ns),
            waiting_since_s=None if since_ns is None else max(0, now_ns - since_ns) / 1e9,
            batches=self._batches.get(key, 0),
            data=reading,
        )

    def wait_share(self, now_ns: int) -> float | None:
        """Part of the last minute spent in `__next__`, 0 to 1; `None` before the first batch."""
        if self._first_next_ns is None:
            return None
        start_ns = max(self._first_next_ns, now_ns - WAIT_WINDOW_NS)
        span_ns = now_ns - start_ns
        if span_ns <= 0:
            return None
        waited = sum(min(ns, max(0, at - start_ns)) for at, ns in self._waits if at > start_ns)
        return min(1.0, waited / span_ns)

    def cuda_unreleased(self) -> int | None:
        """CUDA tensors sent and not released by their receivers."""
        return _integer(_mapping(self.gauges.get("cuda_lent")).get("unreleased"))

    def gpu_uses(self) -> tuple[GpuUse, ...]:
        """Readings of torch's allocator per device, where CUDA is initialised."""
        reading = _mapping(self.gauges.get(_ALLOCATOR))
        devices = reading.get("devices")
        if not isinstance(devices, list):
            return ()
        return tuple(
            GpuUse(
                index=_integer(device.get("index")) or 0,
                memory_bytes=None,
                allocated_bytes=_integer(device.get("allocated")),
                reserved_bytes=_integer(device.get("reserved")),
                read_at_s=self.allocator_at_s,
            )
            for device in map(_mapping, devices)
        )


_ALLOCATOR = "cuda"
"""The gauge of torch's CUDA allocator, which a hook reads on request only (`wire.ASKS`)."""


def _mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: JSON of another process promises nothing."""
    return value if isinstance(value, Mapping) else {}


def _calls_ns(own: Mapping[str, Any]) -> int | None:
    records, each = _integer(own.get("records")), _integer(own.get("wrapper_ns"))
    return None if records is None or each is None else records * each


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


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
