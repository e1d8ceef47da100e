"""Flows of tensors: sends joined with receipts by segment, on the clock of the machine."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from mpwatch.hook import wire
from mpwatch.model.events import RECEIPTS, SENDS, HookEvent
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Flow

Key: TypeAlias = tuple[int, int]
Pair: TypeAlias = tuple[ProcessId, ProcessId]

OPEN_LIMIT = 16_384
"""Segments with a send or a receipt that is not joined, the most recently used."""
SETTLED_LIMIT = 16_384
"""Further segments, the most recently used, to tell reused buffers from new ones. Every batch
is a new one, so there are soon that many: some 150 bytes each."""
SENDS_LIMIT = 1024
"""Sends of one segment that are not joined: one that is sent to each new process, where receivers
have no hook, is sent without end."""
KNOWN_TO_LIMIT = 2
"""Of the processes that knew a segment before their hooks were injected: one that may have sent it,
and another one, of which each receipt needs the one that is not its receiver."""
LATE_S = 3.0
"""Hooks send ten times a second; a receipt without a send by then has a sender without a hook."""
LATENCIES_KEPT = 512
RATE_WINDOW_S = 10.0


class _Send(Struct, frozen=True):
    at_ns: int
    sender: ProcessId
    bytes: int
    copied: bool


class _Receipt(Struct, frozen=True):
    at_ns: int
    receiver: ProcessId
    bytes: int


class _Open:
    """Sends and receipts of one segment that are not joined, each in order of time."""

    __slots__ = ("known_to", "last_sender", "receipts", "sends")

    def __init__(self) -> None:
        self.sends: list[_Send] = []
        self.receipts: list[_Receipt] = []
        self.last_sender: ProcessId | None = None
        self.known_to: tuple[ProcessId, ...] = ()
        """Processes that had sent or received it before their hooks were injected."""

    @property
    def is_new(self) -> bool:
        """Whether no earlier send is known."""
        return self.last_sender is None and not self.known_to

    @property
    def is_settled(self) -> bool:
        """Whether only its last sender is left to remember."""
        return not (self.sends or self.receipts or self.known_to)


class _Tally:
    """Tensors and bytes from one process to another."""

    __slots__ = ("_quantiles", "bytes", "copied_bytes", "latencies_ns", "marks", "tensors")

    def __init__(self) -> None:
        self.tensors = 0
        self.bytes = 0
        self.copied_bytes = 0
        self.latencies_ns: deque[int] = deque(maxlen=LATENCIES_KEPT)
        self.marks: deque[tuple[float, int, int]] = deque()
        self._quantiles: tuple[float | None, float | None] | None = None

    def add(self, size: int, copied: bool, latency_ns: int | None) -> None:
        self.tensors += 1
        self.bytes += size
        self.copied_bytes += size if copied else 0
        if latency_ns is not None:
            self.latencies_ns.append(max(0, latency_ns))
            self._quantiles = None

    def latencies_s(self) -> tuple[float | None, float | None]:
        """Median and 99th percentile in seconds; sorted again only after a new one."""
        if self._quantiles is None:
            ordered = sorted(self.latencies_ns)
            self._quantiles = quantile(ordered, 0.50), quantile(ordered, 0.99)
        return self._quantiles

    def mark(self, at_s: float) -> None:
        """Note the counts, for rates."""
        self.marks.append((at_s, self.tensors, self.bytes))
        while len(self.marks) > 2 and self.marks[1][0] <= at_s - RATE_WINDOW_S:
            self.marks.popleft()

    def rates(self) -> tuple[float | None, float | None]:
        """Tensors and bytes a second between the marks; `None` before there are two."""
        if len(self.marks) < 2 or self.marks[-1][0] <= self.marks[0][0]:
            return None, None
        (began_s, tensors, size), (at_s, more_tensors, more) = self.marks[0], self.marks[-1]
        return (more_tensors - tensors) / (at_s - began_s), (more - size) / (at_s - began_s)


class FlowTable:
    """Joins the reports of senders and receivers, in whatever order they arrive.

    The n-th receipt of a segment belongs to its n-th send. A receipt that stays without a send (the
    sender has no hook) counts for the creator of the segment, if that is known.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[Key, _Open] = OrderedDict()
        self._settled: OrderedDict[int, ProcessId] = OrderedDict()
        """The last sender of each segment of which nothing is open, by its packed key."""
        self._tallies: dict[Pair, _Tally] = {}
        self._unmatched: deque[tuple[int, Key]] = deque()
        self._newest_ns = 0

    def add(self, process: ProcessId, event: HookEvent) -> None:
        """Add one event of one process; other kinds are ignored."""
        if event.flags & (wire.FLAG_EMPTY | wire.FLAG_SPAWNING | wire.FLAG_RAISED):
            return
        if event.kind in SENDS:
            entry = self._entry(event)
            # A segment sent for the first time was filled for this send; one that was sent before
            # is a reused buffer.
            is_copy = bool(event.flags & wire.FLAG_COPIED) or entry.is_new
            entry.sends.append(_Send(event.at_ns, process, event.bytes, is_copy))
            if len(entry.sends) > SENDS_LIMIT:
                del entry.sends[0]
            entry.last_sender = process
        elif event.kind in RECEIPTS:
            entry = self._entry(event)
            entry.receipts.append(_Receipt(event.at_ns, process, event.bytes))
            if not entry.sends:
                self._unmatched.append((event.at_ns, (event.key, event.key2)))
                if len(self._unmatched) > OPEN_LIMIT:
                    self._unmatched.popleft()
        elif event.kind == wire.KNOWN:
            entry = self._entry(event)
            if len(entry.known_to) < KNOWN_TO_LIMIT and process not in entry.known_to:
                entry.known_to += (process,)
            return
        else:
            return
        self._newest_ns = max(self._newest_ns, event.at_ns)
        self._join(entry)
        self._close((event.key, event.key2), entry)

    def settle(self, at_s: float, creators: Mapping[Key, ProcessId]) -> None:
        """Count receipts older than `LATE_S` for the segment's creator, and mark the rates.

        Called at each reading of the job, so that rates do not depend on how often `flows` is.
        """
        horizon_ns = max(self._newest_ns, int(at_s * 1e9)) - int(LATE_S * 1e9)
        while self._unmatched and self._unmatched[0][0] < horizon_ns:
            _, key = self._unmatched.popleft()
            entry = self._open.get(key)
            if entry is None or not entry.receipts:
                continue
            receipt = entry.receipts.pop(0)
            others = [each for each in entry.known_to if each != receipt.receiver]
            sender = entry.last_sender or next(iter(others), None) or creators.get(key)
            if sender is not None and sender != receipt.receiver:
                # A tensor in flight when the hook of its sender was injected was filled for it.
                is_copy = entry.last_sender is None and entry.known_to == (sender,)
                self._tally(sender, receipt.receiver).add(receipt.bytes, is_copy, None)
            self._close(key, entry)
        for tally in self._tallies.values():
            tally.mark(at_s)

    def keep(self, is_kept: Callable[[ProcessId], bool]) -> None:
        """Drop the flows of processes that are no longer shown.

        Called at each reading: a tensor may be received long after its sender was dropped.
        """
        for pair in [pair for pair in self._tallies if not all(map(is_kept, pair))]:
            del self._tallies[pair]

    def flows(self) -> tuple[Flow, ...]:
        """All flows so far, the largest first."""
        in_flight: dict[ProcessId, int] = {}
        for entry in self._open.values():
            for send in entry.sends:
                in_flight[send.sender] = in_flight.get(send.sender, 0) + 1
        flows = []
        for (sender, receiver), tally in self._tallies.items():
            latency_p50_s, latency_p99_s = tally.latencies_s()
            tensors_per_s, bytes_per_s = tally.rates()
            flows.append(
                Flow(
                    sender=sender,
                    receiver=receiver,
                    tensors=tally.tensors,
                    bytes=tally.bytes,
                    copied_bytes=tally.copied_bytes,
                    latency_p50_s=latency_p50_s,
                    latency_p99_s=latency_p99_s,
                    tensors_per_s=tensors_per_s,
                    bytes_per_s=bytes_per_s,
                    in_flight=in_flight.get(sender, 0),
                )
            )
        flows.sort(key=lambda flow: (-flow.bytes, flow.sender, flow.receiver))
        return tuple(flows)

    def _entry(self, event: HookEvent) -> _Open:
        key = (event.key, event.key2)
        entry = self._open.get(key)
        if entry is None:
            if len(self._open) >= OPEN_LIMIT:
                self._open.popitem(last=False)
            entry = self._open[key] = _Open()
            # A reused buffer must not be taken for a new one.
            entry.last_sender = self._settled.pop(_packed(key), None)
        else:
            self._open.move_to_end(key)
        return entry

    def _close(self, key: Key, entry: _Open) -> None:
        """Remember only the last sender of a segment with nothing open."""
        if entry.is_settled:
            del self._open[key]
            if entry.last_sender is not None:
                if len(self._settled) >= SETTLED_LIMIT:
                    self._settled.popitem(last=False)
                self._settled[_packed(key)] = entry.last_sender

    def _join(self, entry: _Open) -> None:
        while entry.sends and entry.receipts:
            send, receipt = entry.sends.pop(0), entry.receipts.pop(0)
            latency_ns = receipt.at_ns - send.at_ns
            self._tally(send.sender, receipt.receiver).add(send.bytes, send.copied, latency_ns)

    def _tally(self, sender: ProcessId, receiver: ProcessId) -> _Tally:
        return self._tallies.setdefault((sender, receiver), _Tally())


def _packed(key: Key) -> int:
    """A key as one number: half the memory of a pair."""
    return (key[0] << 64) + key[1]


def quantile(ordered_ns: list[int], share: float) -> float | None:
    """The value below which a share of sorted nanoseconds lies, in seconds; `None` of nothing."""
    if not ordered_ns:
        return None
    return ordered_ns[min(len(ordered_ns) - 1, int(share * len(ordered_ns)))] / 1e9
