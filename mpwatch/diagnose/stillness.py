"""How long something has not moved: what separates waiting from standing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter

from mpwatch.diagnose.stack_shapes import main_thread
from mpwatch.model.history import History, Series
from mpwatch.model.snapshot import Process, Snapshot

STANDING_S = 8.0
"""Longer than a DataLoader's own 5 s rhythm: who has not moved for this long stands."""
TICK_S = 0.02
"""CPU time between two readings that counts as moving: a poll that wakes up costs less."""


SAMPLES = 8
"""Fewer moments say nothing about a share."""
SHARE_SPAN_S = 12.0
"""Longer than `STANDING_S`: of a job that stands from its start on, that is told and no share."""
WAKES = 3
WAKES_PER_S = 0.6
"""Wake-ups of the main thread that still count as standing: a DataLoader polls every 5 s."""
SWITCHES_OF_A_LOOK = 10
LOOK_S = 1.0
"""A look at the stacks is over this long after it stopped the process, on a loaded machine too."""


def quiet_s(process: Process, history: History) -> float | None:
    """Seconds for which a process has used practically no cpu; `None` if that was not watched.

    The fold's own `still_s` starts again at every tick of cpu time, and a loop that polls every
    five seconds collects one now and then; here such ticks do not count. Work that sleeps most of
    the time shows in how often it wakes up.
    """
    quiet = _idle_s(process, history)
    thread = main_thread(process)
    if quiet is None or thread is None or thread.waits_s is None:
        return quiet
    # Going from one wait to another takes no cpu that could be measured.
    return min(quiet, thread.waits_s)


def _idle_s(process: Process, history: History) -> float | None:
    """Seconds of practically no cpu; `None` if that was not watched."""
    series = history.of(process.process, "cpu_percent")
    thread = main_thread(process)
    still_s = thread.still_s if thread is not None else None
    if len(series) < 2:
        return still_s
    quiet = max(series[-1].at_s - _last_moved_s(series), still_s or 0.0)
    switches = history.of(process.process, "voluntary_switches")
    if len(switches) < 2:
        return quiet
    return min(quiet, _rarely_woken_s(switches, history.of(process.process, "looks")))


def _last_moved_s(cpu_percent: Series) -> float:
    """When it last used more than a tick or two of cpu, or when watching began."""
    for index in range(len(cpu_percent) - 1, 0, -1):
        later, earlier = cpu_percent[index], cpu_percent[index - 1]
        if later.value / 100 * (later.at_s - earlier.at_s) > TICK_S:
            return later.at_s
    return cpu_percent[0].at_s


def _rarely_woken_s(switches: Series, looks: Series) -> float:
    """Seconds for which the main thread woke up no more often than a poll every few seconds.

    Each look at its stacks from outside stops it and is counted as five to ten switches (measured
    with py-spy 0.4): so many are left out, and not more, or a process that is looked at all the
    time would seem to stand.
    """
    since_s = last_s = switches[-1].at_s
    woken = 0.0
    for index in range(len(switches) - 1, 0, -1):
        earlier, later = switches[index - 1], switches[index]
        looked = _looked_at(looks, earlier.at_s, later.at_s)
        woken += max(0.0, later.value - earlier.value - (SWITCHES_OF_A_LOOK if looked else 0))
        if woken > WAKES + WAKES_PER_S * (last_s - earlier.at_s):
            break
        since_s = earlier.at_s
    return last_s - since_s


def _looked_at(looks: Series, from_s: float, to_s: float) -> bool:
    """Whether stacks were taken in between, or so soon after that it was stopped in between."""
    first = bisect_left(looks, from_s, key=attrgetter("at_s"))
    return first < len(looks) and looks[first].at_s - LOOK_S <= to_s


def stands(process: Process, history: History, at_least_s: float = STANDING_S) -> bool:
    """Whether a process has not moved for a while."""
    quiet = quiet_s(process, history)
    return quiet is not None and quiet >= at_least_s


def all_stand(processes: Iterable[Process], history: History) -> bool:
    """Whether none of them has moved for a while; true of none at all."""
    return all(stands(process, history) for process in processes)


def mean_cpu_percent(process: Process, history: History, over_s: float = 15.0) -> float | None:
    """CPU use over the last seconds; `None` if it was watched for less than half of that."""
    series = history.of(process.process, "cpu_percent")
    if not series:
        return None
    recent = [point for point in series if point.at_s >= series[-1].at_s - over_s]
    if recent[-1].at_s - recent[0].at_s < over_s / 2:
        return None
    return sum(point.value for point in recent) / len(recent)


def watched_s(snapshot: Snapshot, history: History) -> float:
    """How long the job has been observed."""
    return 0.0 if history.started_at_s is None else snapshot.at_s - history.started_at_s


def wait_share(process: Process, history: History, over_s: float = 30.0) -> float | None:
    """Part of the last seconds in which it waited as DataLoaders wait, 0 to 1.

    Returns:
        The share of samples; `None` where there were fewer than `SAMPLES`, or over less than
        `SHARE_SPAN_S`.
    """
    series = history.of(process.process, "loader_wait")
    recent = [point for point in series if point.at_s >= series[-1].at_s - over_s]
    if len(recent) < SAMPLES or recent[-1].at_s - recent[0].at_s < SHARE_SPAN_S:
        return None
    return sum(point.value for point in recent) / len(recent)


def waiting_s(process: Process, history: History) -> float:
    """For how long it has been found waiting, at every look, as DataLoaders wait."""
    series = history.of(process.process, "loader_wait")
    since_s = None
    for point in reversed(series):
        if point.value < 1:
            break
        since_s = point.at_s
    return 0.0 if since_s is None else series[-1].at_s - since_s
