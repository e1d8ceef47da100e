"""What the hook of one process has told so far, added up."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges, HookHello, HookNote, HookSlice, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import GpuUse, Hook, Loader, SharedCache, WorkerLoad
from mpwatch.observe.state.flows import quantile
from mpwatch.observe.state.loader_queues import BatchBook
from mpwatch.observe.state.received_notes import ReceivedNotes

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
        """Replace the last readings."""
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
        reading = _mapping(self.gauges.get("cuda"))
        devices = reading.get("devices")
        if not isinstance(devices, list):
            return ()
        return tuple(
            GpuUse(
                index=_integer(device.get("index")) or 0,
                memory_bytes=None,
                allocated_bytes=_integer(device.get("allocated")),
                reserved_bytes=_integer(device.get("reserved")),
            )
            for device in map(_mapping, devices)
        )


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
