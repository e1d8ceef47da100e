"""When a rising number reaches its limit, and how near it is now."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from mpwatch.model.findings import Severity
from mpwatch.model.history import Point, Series, columns, first_at, rise, since, values_of
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import rate_text, seconds_text

WINDOW_S = 120.0
"""Older points do not count towards the slope."""
MIN_POINTS = 5
GROWTH_POINTS = 4
"""Memory is read of one process at a time, so a growth has to be found from few points."""
MIN_SPAN_S = 2.0
MAX_POINTS = 24
"""The series is thinned to this many points: pairs grow with the square."""
MIN_CONFIDENCE = 0.6
MIN_SURPLUS = 3.5
"""More pairs than falling ones have to rise than chance explains, in standard deviations."""
STRAIGHT = 0.95
"""Points this close to their line need no such number: chance makes none of five in a row."""
MAX_HORIZON_S = 24 * 3600.0
"""A limit further away than this is no news."""
SIXTHS = 6
"""Parts of a span whose minima are compared."""
STEADY_WITHIN_S = 480.0
"""Older points do not count towards a steady growth."""
LAST_THIRD = 0.2
"""In the last third of the time a steady growth gains at least this part of the least gain."""
STEADY_SHARE = 0.75
"""At its end a steady growth is at least this fast, compared with its beginning."""
SLOWER = 0.92
"""A third of the time that gains less than this part of the third before it is slower."""
DROP_SHARE = 0.25
"""A fall by this share of the whole range makes a sawtooth."""

CRITICAL_WITHIN_S = 60.0
WARNING_WITHIN_S = 15 * 60.0
SEEN_PART = 0.1
"""A growth is believed to go on for ten times what was seen of it."""
INFO_WITHIN_S = 2 * 3600.0


class Forecast(Struct, frozen=True):
    """A straight line towards a limit."""

    value: float
    """The last value."""
    limit: float
    per_s: float
    """Slope, in units of the value a second; positive."""
    eta_s: float
    """Seconds from the last point until the limit."""
    confidence: float
    """0 to 1: how straight the line is and how consistently it rises."""
    span_s: float
    """Length of the window the slope was taken from."""

    @property
    def severity(self) -> Severity | None:
        """How urgent it is, or `None` if the limit is too far away to speak of."""
        if self.eta_s <= CRITICAL_WITHIN_S:
            return Severity.CRITICAL
        if self.eta_s <= WARNING_WITHIN_S:
            return Severity.WARNING
        return Severity.INFO if self.eta_s <= INFO_WITHIN_S else None


def forecast(series: Series, limit: float, *, window_s: float = WINDOW_S) -> Forecast | None:
    """Say when a series meets a limit, or nothing if it is not clearly on its way there.

    Args:
        series: Values over time, oldest first.
        limit: The value that does damage.
        window_s: How much of the past counts towards the slope, seconds.

    Returns:
        The forecast; `None` on too few points, on a plateau, a sawtooth or a falling line, and once
        the limit is reached, because then there is nothing left to foresee.
    """
    if len(series) < MIN_POINTS:
        return None
    last = series[-1]
    recent = since(series, last.at_s - window_s)
    first = recent[0]
    span_s = last.at_s - first.at_s
    if len(recent) < MIN_POINTS or span_s < MIN_SPAN_S or not first.value < last.value < limit:
        return None
    # The mean slope costs nothing and rules out nearly every series of a healthy job.
    if (limit - last.value) * span_s > 4 * MAX_HORIZON_S * (last.value - first.value):
        return None
    if _was_there_before(series, last.value):
        return None
    return _line(_thinned(recent), limit)


class Growth(Struct, frozen=True):
    """A number that rose steadily for as long as it was watched."""

    per_s: float
    gained: float
    """Last value minus first, within the window."""
    span_s: float


def growth(
    series: Series, *, window_s: float = 5 * WINDOW_S, at_least: float = 0.0
) -> Growth | None:
    """Tell whether a number rises steadily, without a limit to compare it with.

    Args:
        series: Values over time, oldest first.
        window_s: How much of the past counts, seconds.
        at_least: What it must have gained to be worth asking: known at once, a slope is not.

    Returns:
        The growth; `None` on too few points, on a plateau, a sawtooth, a falling line or a rise
        that slows down markedly.
    """
    if len(series) < GROWTH_POINTS:
        return None
    last = series[-1]
    begin = first_at(series, last.at_s - window_s)
    first = series[begin]
    span_s = last.at_s - first.at_s
    gained = last.value - first.value
    if (
        len(series) - begin < GROWTH_POINTS
        or span_s < MIN_SPAN_S
        or gained <= 0
        or gained < at_least
    ):
        return None
    points = _thinned(series[begin:])
    # The few points first: of a healthy job they rule out most, and the whole past costs more.
    if not _rises_throughout(points) or _was_there_before(series, last.value):
        return None
    slopes = pair_slopes(points)
    per_s = median(slopes)
    # Without a limit, a rise whose end is near, compared with what it has gained, levels off.
    ceiling = last.value + 0.25 * gained
    if per_s <= 0 or _levels_off(points, ceiling):
        return None
    if _confidence(points, slopes, per_s) < MIN_CONFIDENCE:
        return None
    return Growth(per_s, gained, span_s)


class Steadiness(Struct, frozen=True):
    """What a rise has to be to count as steady."""

    span_s: float
    """Shortest time it must have lasted."""
    gain: float
    """Least gain within that time."""
    grain: float
    """A difference as small as this says nothing: of counts a few, of memory an arena."""


def steady_growth(series: Series, required: Steadiness) -> Growth | None:
    """Tell whether the floor of a number rises without a plateau, whatever happens above it.

    The floor is the minimum of each sixth of a span. It has to rise from each sixth to the next,
    by no more than half of the gain in any one of them, and at the end nearly as fast as at the
    beginning. The longest span that ends now and fulfils this counts, so that a start before it
    does no harm. A rise that has been slowing down over twice the span is a cache that fills.

    Args:
        series: Values over time, oldest first.
        required: How long and how much.

    Returns:
        The growth; `None` for anything else, also for a sawtooth below its old peak.
    """
    # Two numbers first: of a healthy job they rule out nearly all series, also after a warm-up.
    if rise(series) < required.gain or len(series) < SIXTHS:
        return None
    if rise(series, 1 / 3, STEADY_WITHIN_S) < LAST_THIRD * required.gain:
        return None
    moments, values = columns(series)
    watched_s = moments[-1] - moments[0]
    if watched_s < required.span_s:
        return None
    before: Sequence[float] | None = None
    for span_s in _spans(required.span_s, watched_s):
        floors = _floors(moments, values, moments[-1] - span_s)
        if floors is None or not _is_steady(floors, required):
            before = floors
            continue
        is_filling = before is not None and _slows_down(before, required.grain)
        first = bisect_left(moments, moments[-1] - span_s)
        is_new = first == 0 or floors[-1] >= max(values[:first])
        if is_filling or (not is_new and _was_there_before(series, values[-1])):
            return None
        return Growth(_floor_slope(floors, span_s), values[-1] - values[first], span_s)
    return None


def _spans(least_s: float, watched_s: float) -> list[float]:
    """The spans to try, longest first: all that was watched, then powers of two of the least."""
    longest_s = min(watched_s, STEADY_WITHIN_S)
    spans = [longest_s]
    span_s = least_s * 2 ** math.floor(math.log2(longest_s / least_s))
    while span_s >= least_s:
        if span_s < 0.9 * spans[-1]:
            spans.append(span_s)
        span_s /= 2
    return spans


def _floors(
    moments: Sequence[float], values: Sequence[float], from_s: float
) -> Sequence[float] | None:
    """The minimum of each sixth of the time from then on; `None` if one of them has no point."""
    sixth_s = (moments[-1] - from_s) / SIXTHS
    ends = [bisect_left(moments, from_s + n * sixth_s) for n in range(SIXTHS)] + [len(moments)]
    if any(first >= end for first, end in pairwise(ends)):
        return None
    return [min(values[first:end]) for first, end in pairwise(ends)]


def _is_steady(floors: Sequence[float], required: Steadiness) -> bool:
    """Whether the floors rise throughout, without a jump, and not more slowly at the end."""
    steps = [after - before for before, after in pairwise(floors)]
    gained = floors[-1] - floors[0]
    # The last sixth, of which only the beginning counts, is missing in what the floors gain.
    if min(steps) <= 0 or gained < required.gain * (SIXTHS - 1) / SIXTHS:
        return False
    if max(steps) > max(0.5 * gained, required.grain):
        return False
    first, last = floors[2] - floors[0], floors[-1] - floors[-3]
    return last >= STEADY_SHARE * first - required.grain


def _slows_down(floors: Sequence[float], grain: float) -> bool:
    """Whether each third gained less than the one before, as a cache that fills does."""
    thirds = [floors[1] - floors[0], floors[3] - floors[1], floors[5] - floors[3]]
    thirds[0] *= 2  # from the minimum of its first sixth on, half of it
    return all(after < SLOWER * before - 0.5 * grain for before, after in pairwise(thirds))


def _floor_slope(floors: Sequence[float], span_s: float) -> float:
    """The median slope between all pairs of floors (Theil 1950, Sen 1968), per second."""
    sixth_s = span_s / SIXTHS
    return median(
        (floors[later] - floors[earlier]) / ((later - earlier) * sixth_s)
        for earlier in range(SIXTHS)
        for later in range(earlier + 1, SIXTHS)
    )


def slope(series: Series, *, window_s: float = WINDOW_S) -> float | None:
    """The robust slope per second of the last `window_s` seconds; `None` on too few points."""
    if len(series) < MIN_POINTS:
        return None
    recent = _thinned(since(series, series[-1].at_s - window_s))
    if len(recent) < MIN_POINTS or recent[-1].at_s - recent[0].at_s < MIN_SPAN_S:
        return None
    return median(pair_slopes(recent))


def _line(points: Sequence[Point], limit: float) -> Forecast | None:
    """Fit and judge the line through some points whose last one is the highest of interest."""
    first, last = points[0], points[-1]
    span_s = last.at_s - first.at_s
    if not _rises_throughout(points):
        return None
    slopes = pair_slopes(points)
    per_s = median(slopes)
    if per_s <= 0 or _levels_off(points, limit):
        return None
    confidence = _confidence(points, slopes, per_s)
    eta_s = (limit - last.value) / per_s
    if confidence < MIN_CONFIDENCE or eta_s > MAX_HORIZON_S:
        return None
    return Forecast(last.value, limit, per_s, eta_s, confidence, span_s)


def _thinned(points: Series) -> Sequence[Point]:
    """At most `MAX_POINTS`, evenly taken, the last one always among them."""
    if len(points) <= MAX_POINTS:
        return list(points)
    step = (len(points) - 1) / (MAX_POINTS - 1)
    return [points[round(index * step)] for index in range(MAX_POINTS)]


def _was_there_before(series: Series, value: float) -> bool:
    """Whether this height was reached, and given back, earlier: a sawtooth below its old peak."""
    values = values_of(series)
    least_drop = DROP_SHARE * (max(values) - min(values))
    running = values[0]
    peak: float | None = None
    for current in values:
        if running - current > least_drop:
            peak = running if peak is None else max(peak, running)
            running = current
        running = max(running, current)
    # Peaks of a sawtooth differ a little; a tenth above the old one is new ground.
    return peak is not None and value <= peak + 0.4 * least_drop


def _rises_throughout(points: Sequence[Point]) -> bool:
    """Whether each third of the time ended higher than it began."""
    first, last = points[0], points[-1]
    third_s = (last.at_s - first.at_s) / 3
    before = first.value
    for end_s in (first.at_s + third_s, first.at_s + 2 * third_s, last.at_s):
        at_end = max(p.value for p in points if p.at_s <= end_s + 1e-9)
        if at_end <= before:
            return False
        before = at_end
    return True


def _levels_off(points: Sequence[Point], limit: float) -> bool:
    """Whether a growth that slows down as it did so far would end below the limit."""
    first, last = points[0], points[-1]
    middle_s = (first.at_s + last.at_s) / 2
    middle = min(points, key=lambda point: abs(point.at_s - middle_s))
    early_s, late_s = middle.at_s - first.at_s, last.at_s - middle.at_s
    if early_s <= 0 or late_s <= 0:
        return True
    early = (middle.value - first.value) / early_s
    late = (last.value - middle.value) / late_s
    if early <= 0 or late >= 0.7 * early:
        return False
    # Halves shrink by this factor, so the rest of the way is a geometric series.
    shrink = max(late, 0.0) / early
    return last.value + late * late_s * shrink / (1 - shrink) < limit


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two in the middle.

    The standard library's is the same and loads random numbers, fractions and decimals with it,
    which takes longer than one run of all rules.
    """
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def pair_slopes(points: Sequence[Point]) -> list[float]:
    """Slopes between all pairs of points that lie apart in time; `[0.0]` if none do."""
    return [
        (later.value - earlier.value) / (later.at_s - earlier.at_s)
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later.at_s > earlier.at_s
    ] or [0.0]


def _confidence(points: Sequence[Point], slopes: Sequence[float], per_s: float) -> float:
    """How many pairs rise rather than fall, lessened by the scatter around the line."""
    surplus = sum(each > 0 for each in slopes) - sum(each < 0 for each in slopes)
    levels = [point.value - per_s * point.at_s for point in points]
    level = median(levels)
    scatter = median(abs(each - level) for each in levels)
    straightness = 1 - min(1.0, scatter / (per_s * (points[-1].at_s - points[0].at_s)))
    if straightness < STRAIGHT and surplus < MIN_SURPLUS * _usual_surplus(len(points)):
        return 0.0
    return max(0.0, straightness * surplus / len(slopes))


def _usual_surplus(count: int) -> float:
    """The standard deviation of rising minus falling pairs where there is no trend (Mann 1945)."""
    return math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


AT_LIMIT = 0.97
"""From this share on the next step of a program may fail."""
NEAR_LIMIT = 0.9
SUSTAINED_S = 4.0
"""A rise shorter than this may be a start: workers, pipes and first batches all come at once."""


MOST_AHEAD = 10.0
"""A line is not drawn further into the future than so many times the past it is known from."""


class Approach(Struct, frozen=True):
    """Something that has run out, soon will, or has little left."""

    used: float
    limit: float
    severity: Severity
    ahead: Forecast | None

    @property
    def eta_s(self) -> float | None:
        """Seconds until the limit, where that can be foreseen."""
        return None if self.ahead is None else self.ahead.eta_s

    @property
    def eta_words(self) -> str | None:
        """The time left in words."""
        return None if self.ahead is None else seconds_text(self.ahead.eta_s)

    def trend_words(self, what: str, unit: str = "") -> tuple[str, ...]:
        """The trend as evidence, with how sure it is; empty without one.

        For example `mappings +120/s over the last 30 s, confidence 97%`.
        """
        if self.ahead is None:
            return ()
        rate, over = rate_text(self.ahead.per_s, unit), seconds_text(self.ahead.span_s)
        return (f"{what} {rate} over the last {over}, confidence {self.ahead.confidence:.0%}",)


def approach(
    used: float,
    limit: float,
    series: Series,
    *,
    near: float = NEAR_LIMIT,
    at: float = AT_LIMIT,
    worth_forecasting: float = 0.0,
    series_limit: float | None = None,
) -> Approach | None:
    """Judge how near a limit is.

    Args:
        used: What is in use.
        limit: What can be used; positive.
        series: The values whose trend counts, oldest first.
        near: Share of the limit from which a number that does not rise is worth a warning.
        at: Share from which it counts as reached.
        worth_forecasting: Share below which a rise is taken for a start.
        series_limit: The limit of the series, where it is a part of what is used.

    Returns:
        The approach; `None` if the limit is far away in amount and in time.
    """
    share = used / limit
    ahead = None
    if share >= worth_forecasting and len(series) > 1:
        if series[-1].at_s - series[0].at_s >= SUSTAINED_S:
            ahead = forecast(series, limit if series_limit is None else series_limit)
        if ahead is not None and (ahead.severity is None or _is_premature(ahead)):
            ahead = None
    if share >= at:
        return Approach(used, limit, Severity.CRITICAL, ahead)
    if ahead is not None and ahead.severity is not None:
        return Approach(used, limit, ahead.severity, ahead)
    return Approach(used, limit, Severity.WARNING, None) if share >= near else None


def _is_premature(ahead: Forecast) -> bool:
    """Whether too little has been seen of a rise to predict it for so long."""
    return ahead.eta_s > MOST_AHEAD * ahead.span_s


class MemoryHeadroom(NamedTuple):
    """The nearest limit of memory."""

    free_bytes: int
    total_bytes: int
    what: str
    """`the control group's memory` or `the machine's memory`."""


def memory_headroom(snapshot: Snapshot) -> MemoryHeadroom | None:
    """The control group's limit if there is one, else the machine's memory; `None` if unknown."""
    host = snapshot.host
    cgroup = host.cgroup
    if cgroup is not None and cgroup.memory_limit_bytes and cgroup.memory_bytes is not None:
        limit = cgroup.memory_limit_bytes
        if host.memory_total_bytes is None or limit < host.memory_total_bytes:
            free = max(0, limit - cgroup.memory_bytes)
            return MemoryHeadroom(free, limit, "the control group's memory")
    if host.memory_available_bytes is None or host.memory_total_bytes is None:
        return None
    return MemoryHeadroom(
        host.memory_available_bytes, host.memory_total_bytes, "the machine's memory"
    )


def severity_of_growth(
    headroom: MemoryHeadroom | None, per_s: float, gained_bytes: float
) -> tuple[Severity, float | None]:
    """How bad a growth is and when it uses up the headroom; a distant end is not predicted.

    A cache that fills up grows as fast as a leak, and ends. So it is no warning before
    `gained_bytes`, what was seen of it, is a part of it, unless that is used up in a minute.
    """
    if headroom is None or per_s <= 0:
        return Severity.INFO, None
    eta_s = headroom.free_bytes / per_s
    if eta_s <= CRITICAL_WITHIN_S:
        return Severity.CRITICAL, eta_s
    if eta_s <= WARNING_WITHIN_S and gained_bytes >= SEEN_PART * headroom.free_bytes:
        return Severity.WARNING, eta_s
    return Severity.INFO, eta_s if eta_s <= 24 * 3600 else None
