"""What the hooks of a job have reported so far, and the queues of its DataLoaders."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, ItemsView, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges, HookHello, HookNote, HookSlice, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import GpuUse, Hook, Loader, Process, SharedCache, WorkerLoad
from mpwatch.observe.state.event_log import ReceivedNotes
from mpwatch.observe.state.flows import quantile

FETCHES_KEPT = 256
RECENT_SHOWN = 30
WAIT_WINDOW_NS = 60_000_000_000

ALLOCATOR = "cuda"
"""The gauge of torch's CUDA allocator, which a hook reads on request only (`wire.ASKS`)."""

_NOT_CACHED = wire.FLAG_EMPTY | wire.FLAG_RAISED


class HookTable:
    """The hooks of all processes."""

    def __init__(self) -> None:
        self._records: dict[ProcessId, HookRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    def of(self, process: ProcessId) -> HookRecord:
        """The record of a hook, made if it is the first report."""
        record = self._records.get(process)
        if record is None:
            record = self._records[process] = HookRecord(process)
        return record

    def get(self, process: ProcessId) -> HookRecord | None:
        """The record of a hook, if it has reported anything."""
        return self._records.get(process)

    def start_description(self, process: ProcessId) -> object:
        """What the parent's hook knew of a process as it started it; `None` if nothing."""
        record = self._records.get(process)
        return record.hello.data.get("birth") if record and record.hello else None

    def items(self) -> ItemsView[ProcessId, HookRecord]:
        """All processes with their records."""
        return self._records.items()

    def without(self, known: Collection[ProcessId]) -> list[ProcessId]:
        """Processes that are not among the known ones, in the order of their first reports."""
        return [process for process in self._records if process not in known]

    def batches(self) -> dict[ProcessId, BatchBook]:
        """The DataLoader batches of each process."""
        return {process: record.batches for process, record in self._records.items()}

    def forget(self, process: ProcessId) -> None:
        """Drop a process that is no longer shown."""
        self._records.pop(process, None)


class HookRecord:
    """What the hook of one process has reported so far."""

    def __init__(self, process: ProcessId) -> None:
        self.process = process
        self.has_reported = False
        """Whether the hook itself has sent anything, besides what the observer says of its state.

        Nothing else is asked of a record until then: 65 processes without a hook are built in 0.8
        of the cpu time.
        """
        self.hello: HookHello | None = None
        self.gauges: Mapping[str, Any] = {}
        self.allocator_at_s: float | None = None
        """When the gauge of torch's allocator was read."""
        self.strategy: str | None = None
        self.batches = BatchBook()
        self._received = Received()
        self._fetches = WorkerFetches()
        self._waits = BatchWaits()
        self._cache_entries: int | None = None
        self._status: HookStatus | None = None
        self._shown: Hook | None = None
        """What `hook` has returned, until something else is known."""

    def add_status(self, status: HookStatus) -> None:
        """Note the state of the hook."""
        self._status, self._shown = status, None

    def add_hello(self, hello: HookHello) -> None:
        """Note the properties of the hook; another one than before counts from 0 again."""
        self._has_changed()
        if self.hello is not None and self.hello.since_ns != hello.since_ns:
            self._received.restart()
        self.hello = hello
        self._note_strategy(hello.data)

    def add_gauges(self, gauges: HookGauges) -> None:
        """Replace the gauges; that of the allocator, read on request only, stays until the next."""
        self._has_changed()
        if ALLOCATOR in gauges.data:
            self.allocator_at_s = gauges.at_s
            self.gauges = gauges.data
        elif ALLOCATOR in self.gauges:
            self.gauges = {**gauges.data, ALLOCATOR: self.gauges[ALLOCATOR]}
        else:
            self.gauges = gauges.data
        self.batches.read(gauges.data.get("loaders"))
        self._note_strategy(gauges.data)

    def add_note(self, note: HookNote) -> bool:
        """Count a note; `False` if it was received before."""
        self._has_changed()
        return self._received.add_note(note)

    def add_slice(self, part: HookSlice) -> tuple[HookEvent, ...]:
        """Count events, follow the DataLoaders, and return the events not received before."""
        self._has_changed()
        events = self._received.add_slice(part)
        for event in events:
            self.batches.add(event)
            self._fetches.add(event)
            self._waits.add(event)
            is_share = event.kind == wire.SHARE and not event.flags & _NOT_CACHED
            if is_share or event.kind == wire.CACHE_SWEEP:
                self._cache_entries = event.aux
        return events

    def _has_changed(self) -> None:
        self.has_reported, self._shown = True, None

    def hook(self) -> Hook:
        """State and counts of the hook."""
        if self._shown is None:
            self._shown = self._hook()
        return self._shown

    def _hook(self) -> Hook:
        status, hello = self._status, self.hello
        own = _mapping(self.gauges.get("own"))
        return Hook(
            state="absent" if status is None else status.state,
            reason="" if status is None else status.reason,
            events=self._received.events,
            lost=self._received.lost + self._received.lost_notes,
            lost_notes=self._received.lost_notes,
            torch=hello.torch if hello else None,
            python=hello.python if hello else None,
            missing=hello.missing if hello else {},
            own_cost_ns=_integer(own.get("cpu_ns")),
            own_calls_ns=_calls_ns(own),
        )

    def start_method(self) -> str | None:
        """How the process was started or starts its children, by the hello."""
        value = self.hello.data.get("start_method") if self.hello else None
        return value if isinstance(value, str) else None

    def shared_cache(self) -> SharedCache | None:
        """SharedCache of the process; `None` if nothing was reported of it."""
        gauge = _mapping(self.gauges.get("shared_cache"))
        entries = _integer(gauge.get("entries"))
        if entries is not None:
            return SharedCache(
                entries, _integer(gauge.get("limit")), _integer(gauge.get("expired"))
            )
        return None if self._cache_entries is None else SharedCache(self._cache_entries)

    def worker_load(self, now_ns: int) -> WorkerLoad | None:
        """What the process does as a DataLoader worker; `None` if it never fetched."""
        return self._fetches.load(_mapping(self.gauges.get("worker")), now_ns)

    def loaders(self, now_ns: int) -> tuple[Loader, ...]:
        """The live DataLoader iterators of the process, from its gauges."""
        gauges = self.gauges.get("loaders")
        if not isinstance(gauges, list):
            return ()
        return tuple(self._waits.loader(self.process, _mapping(each), now_ns) for each in gauges)

    def cuda_unreleased(self) -> int | None:
        """CUDA tensors sent and not released by their receivers."""
        return _integer(_mapping(self.gauges.get("cuda_lent")).get("unreleased"))

    def queue_backlog(self) -> int | None:
        """Items in the queues without `maxsize` that the process has used; `None` without any.

        An item counts from `put` to `get`, so also while it waits in the memory of its sender.
        """
        queues = self.gauges.get("queues")
        if not isinstance(queues, list):
            return None
        rows = [_mapping(each) for each in queues]
        depths = [_integer(row.get("depth")) for row in rows if row.get("maxsize") is None]
        known = [depth for depth in depths if depth is not None]
        return sum(known) if known else None

    def gpu_uses(self) -> tuple[GpuUse, ...]:
        """The figures of torch's allocator for each device, where CUDA is initialised."""
        devices = _mapping(self.gauges.get(ALLOCATOR)).get("devices")
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

    def _note_strategy(self, data: Mapping[str, Any]) -> None:
        strategy = data.get("strategy")
        if isinstance(strategy, str):
            self.strategy = strategy


class Received:
    """Counts what was received from the hooks of one process, each event and note once."""

    def __init__(self) -> None:
        self.events = 0
        self._lost = [0, 0]
        """Events that earlier hooks of the process lost, and that the present one lost."""
        self._lost_notes = [0, 0]
        self._notes = ReceivedNotes()
        self._newest: HookEvent | None = None

    @property
    def lost(self) -> int:
        """Events that were overwritten before they could be sent."""
        return sum(self._lost)

    @property
    def lost_notes(self) -> int:
        """Notes that were dropped before they could be sent."""
        return sum(self._lost_notes)

    def restart(self) -> None:
        """Another hook was loaded into the process: it counts from 0 again."""
        self._lost = [sum(self._lost), 0]
        self._lost_notes = [sum(self._lost_notes), 0]
        self._notes.restart()
        self._newest = None

    def add_note(self, note: HookNote) -> bool:
        """Count a note; `False` if it was received before."""
        if not self._notes.add(note):
            return False
        self._lost_notes[1] = max(self._lost_notes[1], note.lost)
        return True

    def add_slice(self, part: HookSlice) -> tuple[HookEvent, ...]:
        """Count events and return those not received before."""
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
        self.events += len(events)
        self._lost[1] = max(self._lost[1], part.lost)
        return events


class WorkerFetches:
    """The batches that a process fetched as a DataLoader worker."""

    def __init__(self) -> None:
        self._worker_id: int | None = None
        self._fetching: HookEvent | None = None
        self._fetched = 0
        self._durations_ns: deque[int] = deque(maxlen=FETCHES_KEPT)

    def add(self, event: HookEvent) -> None:
        """Follow one event; other kinds are ignored."""
        if event.kind == wire.LOADER_FETCH_BEGIN:
            self._fetching = event
            self._worker_id = event.key2
        elif event.kind == wire.LOADER_FETCH:
            self._fetching = None
            self._worker_id = event.key2
            self._fetched += 1
            self._durations_ns.append(event.duration_ns)

    def load(self, gauge: Mapping[str, Any], now_ns: int) -> WorkerLoad | None:
        """What the worker does, with its gauge; `None` if the process is no worker."""
        worker_id = self._worker_id
        if worker_id is None:
            worker_id = _integer(gauge.get("worker_id"))
        if worker_id is None:
            return None
        ordered = sorted(self._durations_ns)
        fetching = self._fetching
        is_same_task = fetching is not None and gauge.get("task") == fetching.aux
        index = gauge.get("index") if is_same_task else None
        return WorkerLoad(
            worker_id=worker_id,
            loader=_integer(gauge.get("loader")),
            fetched=self._fetched,
            fetch_p50_s=quantile(ordered, 0.50),
            fetch_p99_s=quantile(ordered, 0.99),
            recent_s=tuple(ns / 1e9 for ns in list(self._durations_ns)[-RECENT_SHOWN:]),
            task=fetching.aux if fetching else None,
            task_since_s=max(0, now_ns - fetching.at_ns) / 1e9 if fetching else None,
            index=None if index is None else str(index),
        )


class BatchWaits:
    """How long a process waited for batches, by its calls of `__next__`."""

    def __init__(self) -> None:
        self._first_ns: int | None = None
        self._waits: deque[tuple[int, int, int]] = deque()
        """End and duration of each in the last minute, and the loader."""
        self._batches: dict[int, int] = {}
        """By loader."""
        self._last: dict[int, HookEvent] = {}
        """By loader."""

    def add(self, event: HookEvent) -> None:
        """Follow one event; other kinds are ignored."""
        if event.kind != wire.LOADER_NEXT:
            return
        if self._first_ns is None:
            self._first_ns = event.at_ns - event.duration_ns
        self._waits.append((event.at_ns, event.duration_ns, event.key))
        self._batches[event.key] = self._batches.get(event.key, 0) + 1
        self._last[event.key] = event
        for by_loader in (self._batches, self._last):
            if len(by_loader) > LOADERS_KEPT:
                del by_loader[next(iter(by_loader))]
        while self._waits and self._waits[0][0] < event.at_ns - WAIT_WINDOW_NS:
            self._waits.popleft()

    def share(self, now_ns: int, loader: int | None = None) -> float | None:
        """Part of the last minute spent waiting, 0 to 1; `None` before the first batch.

        Args:
            now_ns: End of that minute.
            loader: Only of the waits for this one.
        """
        if self._first_ns is None:
            return None
        start_ns = max(self._first_ns, now_ns - WAIT_WINDOW_NS)
        span_ns = now_ns - start_ns
        if span_ns <= 0:
            return None
        waited = sum(
            min(ns, max(0, at - start_ns))
            for at, ns, key in self._waits
            if at > start_ns and loader in (None, key)
        )
        return min(1.0, waited / span_ns)

    def loader(self, process: ProcessId, gauge: Mapping[str, Any], now_ns: int) -> Loader:
        """A DataLoader iterator, from its gauge and the events since."""
        key = _integer(gauge.get("key")) or 0
        since_ns = _integer(gauge.get("waiting_since_ns"))
        next_task = _integer(gauge.get("rcvd"))
        last = self._last.get(key)
        if last is not None and since_ns is not None and last.at_ns >= since_ns:
            # The wait in the gauge has ended since: the event is newer.
            since_ns = None
            next_task = None if next_task is None else max(next_task, last.aux + 1)
        return Loader(
            process=process,
            key=key,
            workers=_integer(gauge.get("workers")) or 0,
            prefetch=_integer(gauge.get("prefetch")),
            next_task=next_task,
            outstanding=_integer(gauge.get("outstanding")),
            parked=_integer(gauge.get("parked")),
            owner_worker=_integer(gauge.get("owner")),
            wait_share=self.share(now_ns, key),
            process_wait_share=self.share(now_ns),
            waiting_since_s=None if since_ns is None else max(0, now_ns - since_ns) / 1e9,
            batches=self._batches.get(key, 0),
            data=gauge,
        )


def _mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one: JSON of another process promises nothing."""
    return value if isinstance(value, Mapping) else {}


def _calls_ns(own: Mapping[str, Any]) -> int | None:
    records, each = _integer(own.get("records")), _integer(own.get("wrapper_ns"))
    return None if records is None or each is None else records * each


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


LOADERS_KEPT = 256
"""DataLoader iterators whose batches are counted: one that makes a new iterator each epoch for days
must not fill the memory. The oldest is forgotten first."""
FETCHES_REMEMBERED = 64
"""Batches of one worker; torch hands out `prefetch_factor` ahead, 2 by default."""


class HandedOut(Struct, frozen=True):
    """A batch that the main process requested of a worker and has not delivered yet."""

    worker: int
    at_ns: int


class BatchBook:
    """The batches of one process: those it handed out, and those it fetched as a worker."""

    def __init__(self) -> None:
        self._handed: dict[int, dict[int, HandedOut]] = {}
        self._delivered: dict[int, int] = {}
        self._unordered: set[int] = set()
        self._by_pid: dict[int, int] = {}
        self._begun_ns: OrderedDict[int, int] = OrderedDict()
        self._finished_ns: OrderedDict[int, int] = OrderedDict()

    def add(self, event: HookEvent) -> None:
        """Follow one event; other kinds are ignored."""
        kind = event.kind
        if kind == wire.LOADER_PUT_INDEX:
            handed = self._handed.setdefault(event.key, {})
            handed[event.aux] = HandedOut(event.key2, event.at_ns)
        elif kind == wire.LOADER_NEXT:
            self._deliver(event.key, event.aux)
        elif kind in (wire.LOADER_START, wire.LOADER_STOP):
            self._handed.pop(event.key, None)
            self._delivered.pop(event.key, None)
            self._unordered.discard(event.key)
        elif kind == wire.LOADER_FETCH_BEGIN:
            _remember(self._begun_ns, event)
        elif kind == wire.LOADER_FETCH:
            _remember(self._finished_ns, event)

    def _deliver(self, loader: int, batch: int) -> None:
        """Batches are delivered in order: with this one all earlier ones were."""
        if self._delivered.get(loader, -1) >= batch:
            # With `in_order=False` (torch >= 2.6) batches are delivered as they arrive.
            self._unordered.add(loader)
        self._delivered[loader] = batch
        handed = self._handed.get(loader, {})
        while handed and (oldest := next(iter(handed))) <= batch:
            del handed[oldest]

    def read(self, loaders: object) -> None:
        """Note which workers each loader has, from the gauge `loaders`."""
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
        """Batches that a worker has not delivered, by number."""
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

    The second is `None` where batches are delivered as they arrive: it is not known which were.
    """
    handed = main.handed_to(loader, number)
    queued = sum(not worker.has_begun(batch, each) for batch, each in handed.items())
    parked = sum(worker.has_finished(batch, each) for batch, each in handed.items())
    return queued, parked if main.is_ordered(loader) else None


def with_queues(
    processes: Sequence[Process], books: Mapping[ProcessId, BatchBook]
) -> list[Process]:
    """The processes, loader workers with their batches queued and finished."""
    return [_with_queue(process, books) for process in processes]


def _with_queue(process: Process, books: Mapping[ProcessId, BatchBook]) -> Process:
    load = process.loader
    main = books.get(process.parent) if process.parent is not None else None
    own = books.get(process.process)
    if load is None or load.worker_id is None or main is None or own is None or process.is_gone:
        return process
    # A hook that was injected after the worker started does not know its loader.
    loader = load.loader or main.loader_of(process.process)
    if loader is None:
        return process
    queued, parked = standing(main, own, loader, load.worker_id)
    load = replace(load, loader=loader, queued=queued, parked=parked)
    return replace(process, loader=load)
