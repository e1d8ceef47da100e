"""Progress of a job: its batches, collectives, queue calls and tensors, counted over time.

`mpwatch.observe.state.progress` counts them; reports and screens read rates of them. All values
are immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, log
from typing import Literal, NamedTuple, TypeAlias

from mpwatch.model.ids import ProcessId

ProgressKind: TypeAlias = Literal["batches", "collectives", "puts", "gets", "tensors"]
KINDS: tuple[ProgressKind, ...] = ("batches", "collectives", "puts", "gets", "tensors")
"""In the order in which they are shown."""

BUCKET_S = 5.0
"""Length of the buckets of the last minutes, of progress and of the account of time."""
RECENT_BUCKETS = 60
RECENT_S = BUCKET_S * RECENT_BUCKETS
NOW_S = 10.0
"""Shortest time over which the present rate is taken."""
NOW_EVENTS = 4
"""The present rate is taken over the time in which so many are usual, at most over `RECENT_S`."""
LEAST_SPAN_S = 1.0
"""Over a shorter time there is no rate."""
LEAST_RATIO = 1.5
"""A rate that has changed by less than this factor has not changed."""
LEAST_BUCKETS = 3
"""Buckets before and after a change."""
LEAST_LIKELIHOOD = 12.0
"""Logarithm of how much more likely the counts are with the change than with one rate, for events
that are independent. None of 4,500 simulated steady rates reached it within 120 buckets."""


class Counts(NamedTuple):
    """Numbers of events in successive buckets of one length; none after the last."""

    first: int = 0
    """Number of the first bucket, which begins at `first * width_s`."""
    width_s: float = BUCKET_S
    counts: Sequence[int] = ()

    def since(self, at_s: float) -> int:
        """The events from the bucket of a time on."""
        return sum(self.counts[max(0, int(at_s // self.width_s) - self.first) :])

    def between(self, first: int, end: int) -> list[int]:
        """The counts of the buckets from one number up to, without, another."""
        begin = max(first, self.first)
        known = list(self.counts[begin - self.first : max(0, end - self.first)])
        known = [0] * min(end - first, begin - first) + known
        return known + [0] * (end - first - len(known))

    def widened(self, width_s: float) -> Counts:
        """The same events in buckets that are wider by a whole factor."""
        factor = round(width_s / self.width_s)
        if factor <= 1 or not self.counts:
            return self
        first = self.first // factor
        counts = [0] * ((self.first + len(self.counts) - 1) // factor - first + 1)
        for number, count in enumerate(self.counts, start=self.first):
            counts[number // factor - first] += count
        return Counts(first, width_s, counts)


SUM_BUCKETS = 1024
"""Buckets of a sum: processes of which one ended days ago have wider buckets together."""


def summed(parts: Iterable[Counts], newest: int | None = None) -> Counts:
    """The counts of several processes as one, in the widest of their buckets or in wider ones.

    Args:
        parts: Of each process.
        newest: Keep only so many of the last buckets, in the width that they have.
    """
    parts = [part for part in parts if part.counts]
    if len(parts) < 2:
        return parts[0] if parts else Counts()
    width_s = max(part.width_s for part in parts)
    while True:
        parts = [part.widened(width_s) for part in parts]
        first = min(part.first for part in parts)
        end = max(part.first + len(part.counts) for part in parts)
        if newest is not None or end - first <= SUM_BUCKETS:
            break
        width_s *= 2
    if newest is not None:
        first = max(first, end - newest)
    total = [0] * (end - first)
    for part in parts:
        for number, count in enumerate(part.counts, start=part.first - first):
            if number >= 0:
                total[number] += count
    return Counts(first, width_s, total)


class ProgressSource(NamedTuple):
    """What one process has done of one kind, as far as its hook reported it."""

    kind: ProgressKind
    process: ProcessId | None
    """`None` stands for all processes that are no longer shown."""
    total: int
    """How many are known, the first one included."""
    since_s: float
    """The time of the first one known, monotonic."""
    last_s: float
    is_cut: bool
    """Whether there were earlier ones that are not known."""
    recent: Counts
    """The last minutes, in buckets of `BUCKET_S`, without the bucket of the last one."""
    recent_total: int
    """The number of events up to the end of `recent`; further ones are of the last bucket."""
    whole: Counts
    """The whole time, in wider buckets the longer it lasts, without the bucket of the last one."""
    whole_total: int

    def all_recent(self) -> Counts:
        """`recent` with the last bucket."""
        return self._complete(self.recent, self.recent_total)

    def all_whole(self) -> Counts:
        """`whole` with the last bucket."""
        return self._complete(self.whole, self.whole_total)

    def _complete(self, counts: Counts, total: int) -> Counts:
        if total == self.total:
            return counts
        number = int(self.last_s // counts.width_s)
        first = counts.first if counts.counts else number
        before = counts.between(first, number)
        return Counts(first, counts.width_s, [*before, self.total - total])


class RateChange(NamedTuple):
    """When a rate changed, and the rates before and since, per second."""

    ago_s: float
    before_per_s: float
    since_per_s: float


class Pace(NamedTuple):
    """The rates of one kind of progress, of one process or of several, at one moment."""

    kind: ProgressKind
    processes: tuple[ProcessId, ...]
    total: int
    span_s: float
    """How long it has been followed: the time of `whole_per_s`."""
    now_per_s: float | None
    """`None` if it has hardly begun."""
    whole_per_s: float | None
    idle_s: float
    """Since the last one."""
    before_per_s: float | None
    """Over the time up to the last one; where `now_per_s` is 0, the rate before it stopped."""
    change: RateChange | None
    """Where the present rate differs from an earlier one; `None` where it is 0."""
    recent: tuple[tuple[float, float], ...]
    """The last minutes, oldest first: how long ago each bucket ended, and its rate per second."""


def paces(sources: Iterable[ProgressSource], at_s: float) -> list[Pace]:
    """The pace of each kind there is, of all its sources together, in the order of `KINDS`."""
    by_kind: dict[ProgressKind, list[ProgressSource]] = {}
    for source in sources:
        by_kind.setdefault(source.kind, []).append(source)
    return [pace(by_kind[kind], at_s) for kind in KINDS if kind in by_kind]


def pace(sources: Sequence[ProgressSource], at_s: float) -> Pace:
    """The pace of sources of one kind together.

    Args:
        sources: At least one.
        at_s: The moment, monotonic seconds.
    """
    # Before the last beginning that is unknown, the sum would lack what that process did.
    cuts = [source.since_s for source in sources if source.is_cut]
    since_s = max(min(source.since_s for source in sources), max(cuts, default=-inf))
    last_s = max(source.last_s for source in sources)
    at_s = max(at_s, last_s)
    recent = summed((source.all_recent() for source in sources), newest=RECENT_BUCKETS + 1)
    whole = summed(source.all_whole() for source in sources)
    # The first one begins the time and is not part of it.
    known = max(0, whole.since(since_s) - 1)
    before = known / (last_s - since_s) if last_s - since_s >= LEAST_SPAN_S else None
    now = _now(recent, since_s, at_s, before)
    return Pace(
        kind=sources[0].kind,
        processes=tuple(source.process for source in sources if source.process is not None),
        total=sum(source.total for source in sources),
        span_s=at_s - since_s,
        now_per_s=now,
        whole_per_s=known / (at_s - since_s) if at_s - since_s >= LEAST_SPAN_S else None,
        idle_s=at_s - last_s,
        before_per_s=before,
        change=_change(whole, recent, since_s, at_s, now) if now else None,
        recent=_rates(recent, since_s, at_s),
    )


def _now(recent: Counts, since_s: float, at_s: float, usual_per_s: float | None) -> float | None:
    """The rate over the last seconds, more of them where it is usually low."""
    window_s = min(max(NOW_S, NOW_EVENTS / usual_per_s), RECENT_S) if usual_per_s else NOW_S
    begin_s = BUCKET_S * ((at_s - window_s) // BUCKET_S)
    count = recent.since(begin_s)
    if begin_s <= since_s:
        begin_s, count = since_s, max(0, count - 1)
    return count / (at_s - begin_s) if at_s - begin_s >= LEAST_SPAN_S else None


def _rates(recent: Counts, since_s: float, at_s: float) -> tuple[tuple[float, float], ...]:
    """How long ago each bucket ended, and its rate; one that was just begun is left out."""
    last = int(at_s // BUCKET_S)
    first = max(int(since_s // BUCKET_S), last - RECENT_BUCKETS + 1)
    found = []
    for number, count in enumerate(recent.between(first, last + 1), start=first):
        begin_s, end_s = BUCKET_S * number, min(BUCKET_S * (number + 1), at_s)
        if begin_s <= since_s:
            begin_s, count = since_s, max(0, count - 1)
        if end_s - begin_s >= BUCKET_S / 2:
            found.append((at_s - end_s, count / (end_s - begin_s)))
    return tuple(found)


def _change(
    whole: Counts, recent: Counts, since_s: float, at_s: float, now_per_s: float
) -> RateChange | None:
    """The clearest change in the whole time, else in the last minutes, up to the present rate."""
    for counts in (whole, recent):
        width_s = counts.width_s
        last = int(at_s // width_s)
        first = int(since_s // width_s) + 1  # the first bucket is not a whole one, nor the last
        if counts is recent:
            first = max(first, last - RECENT_BUCKETS)
        found = _split(counts.between(first, last)) if last > first else None
        if found is None:
            continue
        place, before, since = found
        change = RateChange(at_s - width_s * (first + place), before / width_s, since / width_s)
        if max(change.since_per_s, now_per_s) < LEAST_RATIO * min(change.since_per_s, now_per_s):
            return change
    return None


def _split(counts: Sequence[int]) -> tuple[int, float, float] | None:
    """Where counts are best divided in two, with the mean of both parts; `None` if nowhere."""
    total, number = sum(counts), len(counts)
    best, found = LEAST_LIKELIHOOD, None
    before = sum(counts[: LEAST_BUCKETS - 1])
    for place in range(LEAST_BUCKETS, number - LEAST_BUCKETS + 1):
        before += counts[place - 1]
        one, other = before / place, (total - before) / (number - place)
        if max(one, other) < LEAST_RATIO * min(one, other) or not other:
            continue
        likelihood = (total - before) * log(other) - total * log(total / number)
        likelihood += before * log(one) if before else 0.0
        if likelihood > best:
            best, found = likelihood, (place, one, other)
    return found
