"""The account of time: what each process and thread of a job did, as shares of the time observed.

`mpwatch.diagnose.analysis.throughput.account` makes it, one reading after another; reports and
screens read it. All values are immutable, so one account can share its parts with the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import groupby
from math import sqrt
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.samples import Frame, WaitKind

ActivityKind: TypeAlias = Literal[
    "computing", "spinning", "waiting", "idle", "sleeping", "stopped", "unknown"
]
"""`spinning`: uses a core in polls that return nothing, or that CUDA makes while it waits.
`idle`: waits for work by design. `sleeping`: waits for a timer."""

Target: TypeAlias = Literal[
    "",
    "barrier",
    "batch",
    "child",
    "collective",
    "core",
    "event",
    "file",
    "gil",
    "gpu",
    "lock",
    "page-faults",
    "pipe",
    "queue",
    "socket",
    "thread",
]
"""What a wait is for; empty where that is not known or does not apply."""

BUCKETS = 12
LAST_MINUTE_S = BUCKET_S * BUCKETS
ACTIVITIES_LIMIT = 8
"""Different activities that are kept of a thread in one bucket."""
WHOLE_LIMIT = 16
"""Different activities that are kept of a thread for the whole time observed."""
OTHER = "various other targets"
"""`Activity.what` of all activities of one kind beyond the limit."""


WaitKey: TypeAlias = tuple[WaitKind, SegmentId | None, tuple[str, ...]]
"""What tells the waits for one semaphore or channel from those for others."""
TASK_WAITS_LIMIT = 256
"""A program may make pools again and again."""


class Activity(NamedTuple):
    """What a thread does at one moment, without anything that changes from one batch to the next.

    Equal activities are summed, so there must be few different ones.
    """

    kind: ActivityKind
    what: str = ""
    """What it waits for or computes, which process has stopped it, or why nothing is known."""
    target: Target = ""
    providers: tuple[ProcessId, ...] = ()
    """The processes that can end a wait, where they are known and few."""
    place: str = ""
    """The line of the program, `train.py:57 step`; empty without a stack."""
    is_of_many: bool = False
    """Whether processes of the job can end a wait that are too many to be named."""


class Share(NamedTuple):
    """One activity and its share of the time, 0 to 1."""

    activity: Activity
    share: float


UNSEEN = Activity("unknown", "no reading found the thread waiting")
NO_PLACE = Activity("computing")
OWN_CODE = Activity("computing", "the program's own code")
"""Of a stack that was in it, while it is not known that the thread ran at that line."""
NO_CORE = Activity("waiting", "a free core", "core")
JOB_WORKS = Activity("unknown", "some process works, or waits for something outside the job")
IMPORTS = "imports"
"""`Activity.what` of a thread that runs the code of a module for the first time, or waits for a
disk from which it is read."""
RUNNING_KINDS: frozenset[ActivityKind] = frozenset(("computing", "spinning"))
POOL_RESULTS = "results of a pool"
"""`Activity.what` of a wait for a call of a Pool."""
FUTURE_RESULT = "the result of a future"
"""`Activity.what` of a wait for a call of an executor."""
STARTING = "the start of a child"
"""`Activity.what` of a wait until a child that was started by spawn has read what it needs."""
DECOMPRESSION = "decompression of files"
"""`Activity.what` of a thread that computes in a decompressor of the standard library."""
ARCHIVE_TABLE = "the table of contents of an archive"
"""`Activity.what` of a thread that reads that: it lists every entry, and is read when the archive
is opened."""
SEEKING = "decompression up to a place in a compressed file"
"""`Activity.what` of a thread that computes in `seek` of a compressed file, which reads up to the
place, and from the start of the file where the place lies behind it."""
PICKLING = "pickling"
UNPICKLING = "unpickling"
COPYING = "copying messages through pipes or sockets"
SHARING = "moving tensors into shared memory"
RECEIVING = "opening shared tensors"
TRANSFERS = frozenset((PICKLING, UNPICKLING, COPYING, SHARING, RECEIVING))
"""`Activity.what` of a thread that computes only to pass objects from one process to another."""
DESCRIPTORS = "descriptors of shared tensors"
"""`Activity.what` of a wait that is part of `RECEIVING`."""
SYNC_CALLS = ("fsync", "fdatasync", "msync", "sync_file_range", "sync", "syncfs")
"""System calls that return when data is on the disk; `Activity.what` begins with their name."""


class Tally(NamedTuple):
    """What was observed of one thread in a stretch of time.

    CPU time is measured exactly, by the kernel's counter. Readings are samples: they show what a
    thread does at one moment. So `shares` divides the cpu time among the activities of readings
    that found the thread running, and the remaining time among those of readings that found it
    waiting.
    """

    observed_s: float
    cpu_s: float
    readings: float
    """A fraction where a stretch begins or ends between two readings."""
    seen: Mapping[Activity, float]
    """The seconds before the readings that found each activity."""

    def plus(
        self, activity: Activity, elapsed_s: float, cpu_s: float, readings: float = 1.0
    ) -> Tally:
        """The tally after further readings that all found the same activity.

        Args:
            activity: What they found; beyond `ACTIVITIES_LIMIT` it is summed with others of its
                kind.
            elapsed_s: Seconds since the reading before; 0 for the first one of the thread.
            cpu_s: The cpu time of the thread in these seconds.
            readings: How many readings.
        """
        seen = dict(self.seen)
        if activity not in seen and len(seen) >= ACTIVITIES_LIMIT:
            activity = Activity(activity.kind, OTHER)
        seen[activity] = seen.get(activity, 0.0) + (elapsed_s or FIRST_WEIGHT_S)
        return Tally(
            self.observed_s + elapsed_s, self.cpu_s + cpu_s, self.readings + readings, seen
        )

    def shares(self) -> tuple[Share, ...]:
        """The share of each activity, the largest first; their sum is 1. Empty without readings.

        Where more readings found the thread ready to run than its cpu time explains, by twice the
        error of that sampling, the difference is time in which it waited for a free core.
        """
        running = {each: weight for each, weight in self.seen.items() if each.kind in RUNNING_KINDS}
        waiting = {
            each: weight for each, weight in self.seen.items() if each.kind not in RUNNING_KINDS
        }
        found_s = sum(self.seen.values())
        if found_s <= 0:
            return ()
        ready = sum(running.values()) / found_s
        if self.observed_s <= 0:  # a single reading
            return _ranked({each: weight / found_s for each, weight in self.seen.items()})
        busy = min(1.0, max(0.0, self.cpu_s / self.observed_s))
        n = max(1.0, self.readings)
        error = 2 * sqrt(ready * (1 - ready) / n + 0.25 / (n * n))
        for_core = max(0.0, min(ready - error, 1.0) - busy)
        shares: dict[Activity, float] = {}
        _divide(shares, busy, running, NO_PLACE)
        _divide(shares, 1.0 - busy - for_core, waiting, UNSEEN)
        if for_core:
            shares[NO_CORE] = shares.get(NO_CORE, 0.0) + for_core
        return _ranked(shares)

    @property
    def error(self) -> float:
        """Half the width of the 95 % confidence interval of a waiting share, 0 to 1, at worst.

        A share that is estimated from n independent samples has a standard error of at most
        sqrt(1 / 4n).
        """
        return min(1.0, 0.98 / sqrt(max(1.0, self.readings)))


FIRST_WEIGHT_S = 0.1
"""The weight of a reading before which there was none, in seconds."""
NOTHING = Tally(0.0, 0.0, 0.0, {})


def _divide(
    shares: dict[Activity, float],
    part: float,
    weights: Mapping[Activity, float],
    otherwise: Activity,
) -> None:
    """Add a part of the time to the shares, in proportion to the weights."""
    if part <= 0:
        return
    total = sum(weights.values())
    if total <= 0:
        shares[otherwise] = shares.get(otherwise, 0.0) + part
        return
    for each, weight in weights.items():
        shares[each] = shares.get(each, 0.0) + part * weight / total


def _ranked(shares: Mapping[Activity, float]) -> tuple[Share, ...]:
    ranked = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Share(each, share) for each, share in ranked)


def together(tallies: Iterable[Tally]) -> Tally:
    """One tally of several stretches of time; at most `WHOLE_LIMIT` activities by name.

    A thread that has done one thing for a minute has the same tally in nearly all of its buckets:
    to add that once takes a third of the time.
    """
    observed_s = cpu_s = 0.0
    readings = 0.0
    seen: dict[Activity, float] = {}
    for _, equal in groupby(tallies, id):
        tally, *others = equal
        count = 1 + len(others)
        observed_s += count * tally.observed_s
        cpu_s += count * tally.cpu_s
        readings += count * tally.readings
        for activity, weight in tally.seen.items():
            seen[activity] = seen.get(activity, 0.0) + count * weight
    if len(seen) > WHOLE_LIMIT:
        ranked = sorted(seen.items(), key=lambda item: -item[1])
        seen = dict(ranked[:WHOLE_LIMIT])
        for activity, weight in ranked[WHOLE_LIMIT:]:
            other = Activity(activity.kind, OTHER)
            seen[other] = seen.get(other, 0.0) + weight
    return Tally(observed_s, cpu_s, readings, seen)


class Bucket(NamedTuple):
    """One stretch of `BUCKET_S` seconds."""

    number: int
    """Its beginning, in units of `BUCKET_S` on CLOCK_MONOTONIC."""
    tally: Tally


CALLERS_S = 30.0
"""Length of a stretch of time of which the common callers are kept."""


class Callers(NamedTuple):
    """The calls that all stacks of a computing thread had in common in a stretch of time."""

    since_s: float
    """When the first of these stacks was taken, monotonic."""
    taken_s: float
    """When the last one was taken."""
    frames: tuple[Frame, ...]
    """Outermost first. The last may have line 0: that function was at several lines."""
    stacks: int
    installed: int
    """How many of the stacks ended in the code of an installed package."""

    def with_later(self, other: Callers) -> Callers:
        """What this stretch of time and a later one have in common."""
        return Callers(
            self.since_s,
            other.taken_s,
            _common(self.frames, other.frames),
            self.stacks + other.stacks,
            self.installed + other.installed,
        )


def _common(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The calls in which two stacks agree, outermost first."""
    found: list[Frame] = []
    for mine, its in zip(one, other, strict=False):
        if (mine.function, mine.file) != (its.function, its.file):
            break
        if mine.line != its.line:
            found.append(Frame(mine.function, mine.file, 0))
            break
        found.append(mine)
    return tuple(found)


class ThreadAccount(NamedTuple):
    """The time of one thread.

    Most threads do at one reading what they did at the reading before. So the time since
    `counted_s` is not in the tallies yet: all readings since then have found `now`. That leaves the
    account of such a thread the same object, and a reading of 65 processes takes a third.
    """

    tid: int
    name: str
    now: Activity
    """What the last reading found."""
    counted_s: float
    """Until when the tallies reach."""
    counted_readings: int
    """The number of the last reading in the tallies."""
    counted_ticks: int | None
    """The cpu time of the thread then."""
    older: Tally = NOTHING
    """Before the buckets."""
    buckets: tuple[Bucket, ...] = ()
    """The last ones, at most `BUCKETS`, oldest first."""
    basis: tuple[object, ...] = ()
    """What `now` was derived from: equal values mean the same again."""
    callers: tuple[Callers, ...] = ()
    """Of the last one or two stretches of `CALLERS_S` in which it computed, oldest first."""
    imported_in: int | None = None
    """The number of the last bucket among the older ones in which it was found in an import."""

    def last_minute(self) -> Tally:
        """The last `LAST_MINUTE_S`, give or take `BUCKET_S`.

        Of an exited process those before its exit.
        """
        return together(bucket.tally for bucket in self.buckets)

    def inside(self) -> Callers | None:
        """The calls that no stack of its last `CALLERS_S` or more has left; `None` without any."""
        return reduce(Callers.with_later, self.callers) if self.callers else None

    def whole(self) -> Tally:
        """The whole time observed."""
        return together((self.older, *(bucket.tally for bucket in self.buckets)))

    def counted(
        self, at_s: float, readings: int, ticks: int | None, ticks_per_s: int
    ) -> ThreadAccount:
        """The account with the time up to a reading in its tallies.

        Args:
            at_s: The time of the reading.
            readings: Its number.
            ticks: The cpu time of the thread then.
            ticks_per_s: The unit of cpu times.
        """
        more = readings - self.counted_readings
        if more <= 0:
            return self
        elapsed_s = max(0.0, at_s - self.counted_s)
        cpu_s = 0.0
        if ticks is not None and self.counted_ticks is not None:
            cpu_s = min(max(0.0, (ticks - self.counted_ticks) / ticks_per_s), elapsed_s)
        older, buckets, imported_in = self._filled(at_s, elapsed_s, cpu_s, more)
        return ThreadAccount(
            self.tid,
            self.name,
            self.now,
            at_s,
            readings,
            ticks,
            older,
            buckets,
            self.basis,
            self.callers,
            imported_in,
        )

    def _filled(
        self, at_s: float, elapsed_s: float, cpu_s: float, readings: float
    ) -> tuple[Tally, tuple[Bucket, ...], int | None]:
        """`older`, `buckets` and `imported_in` with a stretch of the present activity."""
        buckets = list(self.buckets)
        last = int(at_s // BUCKET_S)
        first = int((at_s - elapsed_s) // BUCKET_S)
        begin = max(first, last - BUCKETS)
        for number in dict.fromkeys((begin, last)):
            begin_s, end_s = number * BUCKET_S, (number + 1) * BUCKET_S
            if number == begin:
                begin_s = at_s - elapsed_s  # also what is older than all buckets
            else:
                buckets += self._whole_buckets(begin + 1, last, elapsed_s, cpu_s, readings)
            within_s = min(end_s, at_s) - max(begin_s, at_s - elapsed_s)
            part = within_s / elapsed_s if elapsed_s > 0 else 1.0
            if not part:
                continue
            before = buckets.pop().tally if buckets and buckets[-1].number == number else NOTHING
            tally = before.plus(self.now, within_s, cpu_s * part, readings * part)
            buckets.append(Bucket(number, tally))
        gone = [bucket for bucket in buckets if bucket.number <= last - BUCKETS]
        if not gone:
            return self.older, tuple(buckets), self.imported_in
        imports = [b.number for b in gone if any(each.what == IMPORTS for each in b.tally.seen)]
        older = together((self.older, *(bucket.tally for bucket in gone)))
        return older, tuple(buckets[len(gone) :]), imports[-1] if imports else self.imported_in

    def _whole_buckets(
        self, first: int, end: int, elapsed_s: float, cpu_s: float, readings: float
    ) -> list[Bucket]:
        """The buckets that lie within a stretch of the present activity, all with one tally."""
        if end <= first:
            return []
        part = BUCKET_S / elapsed_s
        tally = NOTHING.plus(self.now, BUCKET_S, cpu_s * part, readings * part)
        return [Bucket(number, tally) for number in range(first, end)]


class ProcessAccount(Struct, frozen=True):
    """The time of one process."""

    process: ProcessId
    at_s: float
    """The time of its last reading, monotonic."""
    readings: int
    """The number of that reading."""
    uncounted: tuple[ThreadAccount, ...]
    """Main thread first; of an exited process only that one. See `ThreadAccount`."""
    ticks: tuple[int | None, ...]
    """The cpu times of these threads at the last reading."""
    ticks_per_s: int = 100
    omitted: int = 0
    """Threads that are not accounted for because the process has very many."""

    @property
    def threads(self) -> tuple[ThreadAccount, ...]:
        """The threads with all time up to the last reading in their tallies."""
        return tuple(self.thread(number) for number in range(len(self.uncounted)))

    @property
    def main(self) -> ThreadAccount:
        """The main thread; as `threads`."""
        return self.thread(0)

    def thread(self, number: int) -> ThreadAccount:
        """One of the threads, by its place in `uncounted`; as `threads`."""
        return self.uncounted[number].counted(
            self.at_s, self.readings, self.ticks[number], self.ticks_per_s
        )


class Account(Struct, frozen=True):
    """The time of every process of a job, up to one reading."""

    root: ProcessId | None = None
    """The job; `None` before the first reading."""
    since_s: float = 0.0
    at_s: float = float("-inf")
    """Monotonic seconds, as all `at_s`."""
    readings: int = 0
    processes: Mapping[ProcessId, ProcessAccount] = field(default_factory=dict)
    job: ThreadAccount | None = None
    """Of the job as a whole: `JOB_WORKS`, or the wait of one process while none works."""
    task_waits: frozenset[WaitKey] = frozenset()
    """The waits for a task that stacks of workers of pools have shown so far."""

    def pauses(self) -> Tally:
        """The last minute of `job`; `seen` has the time in which no process worked."""
        if self.job is None:
            return NOTHING
        return self.job.counted(self.at_s, self.readings, None, 1).last_minute()

    @property
    def watched_s(self) -> float:
        """How long the job was observed, in seconds."""
        return max(0.0, self.at_s - self.since_s) if self.readings else 0.0
