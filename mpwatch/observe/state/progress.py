"""Counts what the hooks of a job report as progress: batches, collectives, queue calls, tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpwatch.hook import wire
from mpwatch.model.events import HookEvent, HookGauges, HookHello, HookSlice
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import (
    BUCKET_S,
    RECENT_BUCKETS,
    Counts,
    ProgressKind,
    ProgressSource,
    summed,
)

WHOLE_BUCKETS = 128
"""Buckets of the whole time; when they are full, each two become one."""
UNRECORDED_LIMIT = 2_000
"""Calls of queues between two records: less than this fit into the 10 ms in which a short call is
not recorded."""
REORDERED_LIMIT = 64
"""A number so much lower than the last one is of another thread, which was slower to record it."""
QUEUES_KEPT = 256
"""Queues of one process whose calls are followed."""
COUNTS_LIMIT = 8
"""Counts of queue calls in one process; the hook has three of each kind."""

_NO_TENSOR = wire.FLAG_EMPTY | wire.FLAG_SPAWNING | wire.FLAG_RAISED
_KINDS: Mapping[int, ProgressKind] = {
    wire.LOADER_NEXT: "batches",
    wire.QUEUE_PUT: "puts",
    wire.QUEUE_GET: "gets",
    wire.REBUILD: "tensors",
    wire.CUDA_REBUILD: "tensors",
}
_QUEUE_CALLS: tuple[ProgressKind, ...] = ("puts", "gets")
_OF_LOADERS = frozenset(
    (wire.LOADER_PUT_INDEX, wire.LOADER_FETCH, wire.LOADER_START, wire.LOADER_FETCH_BEGIN)
)
_BUCKET_NS = int(BUCKET_S * 1e9)
INSTANT_S = 0.001
"""Less than the time between two events that are distinguished."""
NUMBERS_END = 1 << 63
GROUPS_KEPT = 64
"""Process groups of one process whose collectives are followed."""


class _Buckets:
    """Counts in successive buckets, bounded: the oldest are dropped, or each two become one.

    All but the last bucket are closed. Their counts are handed out and never changed, so that a
    snapshot costs nothing where no bucket was closed.
    """

    __slots__ = ("closed", "closed_total", "is_whole", "last", "last_count")

    def __init__(self, at_s: float, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self.last = int(at_s // BUCKET_S)
        """The number of the last bucket."""
        self.last_count = 0
        self.closed = Counts(self.last)
        self.closed_total = 0
        """The events in the closed buckets, and in those that were dropped."""

    def close_before(self, at_s: float) -> None:
        """Close all buckets before that of a time."""
        if int(at_s // self.closed.width_s) <= self.last:
            return
        found = Counts(
            self.closed.first, self.closed.width_s, [*self.closed.counts, self.last_count]
        )
        self.closed_total += self.last_count
        self.last_count = 0
        number = int(at_s // found.width_s)
        first = found.first
        if self.is_whole:
            while number - found.first > WHOLE_BUCKETS:
                found = found.widened(2 * found.width_s)
                number = int(at_s // found.width_s)
            first = found.first
            if first + len(found.counts) > number:
                # The time lies within the last of the wider buckets.
                self.last_count = found.counts[-1]
                self.closed_total -= self.last_count
        else:
            first = max(first, number - RECENT_BUCKETS)
        self.last = number
        self.closed = Counts(first, found.width_s, tuple(found.between(first, number)))


class _Source:
    """The progress of one process of one kind."""

    __slots__ = (
        "end_s",
        "is_cut",
        "kind",
        "last_s",
        "process",
        "recent",
        "since_s",
        "taken",
        "total",
        "whole",
    )

    def __init__(self, kind: ProgressKind, process: ProcessId, at_s: float, is_cut: bool) -> None:
        self.kind = kind
        self.process = process
        self.total = 0
        self.since_s = self.last_s = at_s
        self.is_cut = is_cut
        self.recent = _Buckets(at_s, is_whole=False)
        self.end_s = BUCKET_S * (self.recent.last + 1)
        """The end of its last bucket, up to which `whole` is updated as well."""
        self.whole = _Buckets(at_s, is_whole=True)
        self.taken: ProgressSource | None = None
        """The present state, once it was asked for."""

    def add(self, at_s: float, count: int) -> None:
        """Count events at a time; those of a closed bucket count for the last one."""
        self.total += count
        self.taken = None
        if at_s > self.last_s:
            self.last_s = at_s
        elif at_s < self.since_s:
            self.since_s = at_s
        recent = self.recent
        if at_s >= self.end_s:
            whole = self.whole
            whole.last_count += recent.last_count
            whole.close_before(at_s)
            recent.close_before(at_s)
            self.end_s = BUCKET_S * (recent.last + 1)
        recent.last_count += count

    def source(self) -> ProgressSource:
        """The present state; the same object until something is added."""
        if self.taken is None:
            recent, whole = self.recent, self.whole
            self.taken = ProgressSource(
                self.kind,
                self.process,
                self.total,
                self.since_s,
                self.last_s,
                self.is_cut,
                recent.closed,
                recent.closed_total,
                whole.closed,
                whole.closed_total,
            )
        return self.taken


def _together(sources: Sequence[ProgressSource]) -> ProgressSource:
    """What several processes have done, as that of none of them."""
    whole = summed(source.all_whole() for source in sources)
    while len(whole.counts) > WHOLE_BUCKETS:
        whole = whole.widened(2 * whole.width_s)
    total = sum(source.total for source in sources)
    return ProgressSource(
        kind=sources[0].kind,
        process=None,
        total=total,
        since_s=min(source.since_s for source in sources),
        last_s=max(source.last_s for source in sources),
        is_cut=any(source.is_cut for source in sources),
        recent=summed((source.all_recent() for source in sources), newest=RECENT_BUCKETS),
        recent_total=total,
        whole=whole,
        whole_total=total,
    )


class _QueueCalls:
    """Counts the calls of queues by their numbers, since only some of them are recorded.

    The queues of one class are counted together by the hook, those of other classes apart, and a
    record does not contain its class. So the first record of a queue joins the count that it
    continues, or begins another one.
    """

    __slots__ = ("_last", "_of_queue")

    def __init__(self) -> None:
        self._last: list[int] = []
        """The last number of each count."""
        self._of_queue: dict[int, int] = {}
        """Which of the counts a queue belongs to, by its key."""

    def calls(self, queue: int, number: int) -> int:
        """The calls up to one with this number that have not been counted yet.

        Args:
            queue: Key of the queue.
            number: Of the call, from 1; 0 if the call has none because it failed.
        """
        if number <= 0:
            return 0
        which = self._of_queue.get(queue)
        if which is not None:
            more = number - self._last[which]
            if more > 0:
                self._last[which] = number
                return more
            if more > -REORDERED_LIMIT:
                return 0
        return self._begin(queue, number)

    def _begin(self, queue: int, number: int) -> int:
        """Assign a queue to the nearest count that it can continue, else to a new one."""
        if len(self._of_queue) >= QUEUES_KEPT:
            del self._of_queue[next(iter(self._of_queue))]
        gaps = [(number - last, which) for which, last in enumerate(self._last)]
        gap, which = min((each for each in gaps if each[0] > 0), default=(0, -1))
        if which < 0 or gap > UNRECORDED_LIMIT:
            gap, which = 1, len(self._last)
            if which >= COUNTS_LIMIT:
                which = 0
            else:
                self._last.append(0)
        self._last[which] = number
        self._of_queue[queue] = which
        return gap


class _Hooked:
    """What is known of the hook of one process."""

    __slots__ = ("completed", "gauges_s", "has_loader", "is_cut", "queues", "since_ns", "sources")

    def __init__(self) -> None:
        self.sources: dict[ProgressKind, _Source] = {}
        self.since_ns: int | None = None
        self.is_cut: bool | None = None
        """Whether its first records were lost; `None` before any have arrived."""
        self.has_loader = False
        """Whether it has a DataLoader or is a worker of one, whose queues are not counted."""
        self.queues = {kind: _QueueCalls() for kind in _QUEUE_CALLS}
        self.gauges_s: float | None = None
        """The time of the last gauges with collectives."""
        self.completed: dict[str, int] = {}
        """The number of the last collective finished, by process group."""

    def begin(self, kind: ProgressKind, process: ProcessId, at_s: float) -> _Source:
        """Follow one more kind of progress from a time on."""
        source = self.sources[kind] = _Source(kind, process, at_s, bool(self.is_cut))
        return source

    def note_loader(self, tallies: dict[ProgressKind, list[int]] | None = None) -> None:
        """Stop counting the calls of queues, and drop those counted so far.

        Args:
            tallies: Counts that have not been added yet.
        """
        self.has_loader = True
        for kind in _QUEUE_CALLS:
            self.sources.pop(kind, None)
            if tallies is not None:
                tallies.pop(kind, None)

    def finished(self, states: Sequence[object]) -> int:
        """The collectives that have finished since the last call, of all process groups.

        Args:
            states: See `collectives` in `mpwatch.hook.wire`.
        """
        completed: dict[str, int] = {}
        for state in states:
            number = _whole_number(state.get("completed")) if isinstance(state, Mapping) else None
            if isinstance(state, Mapping) and number is not None and number > 0:
                completed[str(state.get("id"))] = number
        before = self.completed
        self.completed = dict(list({**before, **completed}.items())[-GROUPS_KEPT:])
        return sum(max(0, number - before.get(name, 0)) for name, number in completed.items())


class ProgressTable:
    """The progress of all processes of a job.

    Of a process with a DataLoader the calls of queues are not counted, nor of its workers: nearly
    all are those of the loader.
    """

    def __init__(self) -> None:
        self._hooked: dict[ProcessId, _Hooked] = {}
        self._past: dict[ProgressKind, ProgressSource] = {}
        """Of processes that are no longer shown."""

    def add_hello(self, hello: HookHello) -> None:
        """Note the hook of a process; another one than before begins to count anew."""
        hooked = self._of(hello.process)
        if hooked.since_ns not in (None, hello.since_ns):
            hooked.queues = {kind: _QueueCalls() for kind in _QUEUE_CALLS}
        hooked.since_ns = hello.since_ns
        description = hello.data.get("birth")
        if isinstance(description, Mapping) and description.get("worker_id") is not None:
            hooked.note_loader()

    def add_events(self, part: HookSlice, events: Sequence[HookEvent]) -> None:
        """Count events.

        Args:
            part: With which they arrived.
            events: Those of it that were not received before.
        """
        hooked = self._of(part.process)
        if hooked.is_cut is None:
            hooked.is_cut = part.lost > 0
        tallies: dict[ProgressKind, list[int]] = {}
        end_ns = 0
        for event in events:
            kind = _KINDS.get(event.kind)
            if kind is None:
                if event.kind in _OF_LOADERS and not hooked.has_loader:
                    hooked.note_loader(tallies)
                continue
            count = 1
            if kind == "tensors":
                count = 0 if event.flags & _NO_TENSOR else 1
            elif kind != "batches":
                count = 0 if hooked.has_loader else hooked.queues[kind].calls(event.key, event.aux)
            elif not hooked.has_loader:
                hooked.note_loader(tallies)
            if not count:
                continue
            at_ns = event.at_ns
            if at_ns >= end_ns:  # of the next bucket
                self._add_tallies(part, hooked, tallies)
                tallies = {}
                end_ns = (at_ns // _BUCKET_NS + 1) * _BUCKET_NS
            tally = tallies.get(kind)
            if tally is None:
                tallies[kind] = [count, at_ns, at_ns]
            else:
                tally[0] += count
                tally[2] = at_ns
        self._add_tallies(part, hooked, tallies)

    def _add_tallies(
        self, part: HookSlice, hooked: _Hooked, tallies: Mapping[ProgressKind, Sequence[int]]
    ) -> None:
        """Add counts with the times of the first and the last event of each."""
        for kind, (count, first_ns, last_ns) in tallies.items():
            # A process may report any time; one to come would move all buckets there.
            at_s = min(last_ns / 1e9, part.at_s)
            source = hooked.sources.get(kind)
            if source is None:
                source = hooked.begin(kind, part.process, min(first_ns / 1e9, at_s))
            source.add(at_s, count)

    def add_gauges(self, gauges: HookGauges) -> None:
        """Count the collectives that have finished since the last gauges.

        What had been done before the hook was attached counts as one, at the time of the first
        gauges: it shows that there was progress, and since when there was none.
        """
        data, hooked = gauges.data, self._of(gauges.process)
        loaders = data.get("loaders")
        if "batches" not in hooked.sources and isinstance(loaders, list):
            rows = [row for row in loaders if isinstance(row, Mapping)]
            if any((_whole_number(row.get("rcvd")) or 0) > 0 for row in rows):
                hooked.begin("batches", gauges.process, gauges.at_s).add(gauges.at_s, 1)
        collectives = data.get("collectives")
        states = collectives.get("states") if isinstance(collectives, Mapping) else None
        if isinstance(states, list):
            self._add_collectives(gauges.process, gauges.at_s, hooked, states)

    def _add_collectives(
        self, process: ProcessId, at_s: float, hooked: _Hooked, states: Sequence[object]
    ) -> None:
        """Add the collectives finished since the last gauges, evenly over the time between."""
        count, before_s = hooked.finished(states), hooked.gauges_s
        hooked.gauges_s = at_s
        source = hooked.sources.get("collectives")
        if source is None:
            if count:
                hooked.begin("collectives", process, at_s).add(at_s, 1)
            return
        bucket_s = BUCKET_S * (at_s // BUCKET_S)
        if count and before_s is not None and before_s < bucket_s:
            earlier = round(count * (bucket_s - before_s) / (at_s - before_s))
            if earlier:
                source.add(max(before_s, bucket_s - INSTANT_S), earlier)
            count -= earlier
        if count:
            source.add(at_s, count)

    def sources(self) -> tuple[ProgressSource, ...]:
        """What each process has done of each kind up to now."""
        found = [
            source.taken or source.source()
            for hooked in self._hooked.values()
            for source in hooked.sources.values()
        ]
        return (*self._past.values(), *found)

    def forget(self, process: ProcessId) -> None:
        """Keep only the sums of a process that is no longer shown."""
        hooked = self._hooked.pop(process, None)
        for kind, source in hooked.sources.items() if hooked else ():
            before = self._past.get(kind)
            gone = source.source()
            self._past[kind] = _together([gone] if before is None else [before, gone])

    def _of(self, process: ProcessId) -> _Hooked:
        hooked = self._hooked.get(process)
        if hooked is None:
            hooked = self._hooked[process] = _Hooked()
        return hooked


def _whole_number(value: object) -> int | None:
    """The value if it is a number that the hook can have counted."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if abs(value) < NUMBERS_END else None
