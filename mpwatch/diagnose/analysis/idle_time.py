"""For how long a process has made no progress: a stalled process, or one that waits as usual."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.receivers import spinning
from mpwatch.diagnose.analysis.stack_patterns import HOOK_THREAD, main_thread, shape_in
from mpwatch.model.history import History, Series, columns, first_at, values_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import THREADS_OF_A_GROUP
from mpwatch.model.snapshot import Process, Thread

STALLED_S = 8.0
"""A process without progress for this long is stalled. Longer than a DataLoader's polls of 5 s."""
STUCK_S = 6.0
"""So long is enough where the stacks already show a wait that nothing ends."""
CERTAIN_S = 3.0
"""Enough where the call shows a wait without timeout that no thread of the process can end, or
where no process can end the wait of the last one of a chain."""
TICK_S = 0.02
"""CPU time between two readings that counts as progress: a poll costs less."""
IDLE_SHARE = 0.03
"""Of a core, over the time in question: a process that gets more makes progress, however little
that is in one reading. On a machine with many processes to each core, a computation gets no more
than this."""

SAMPLES = 8
"""With fewer points a share means nothing."""
SHARE_SPAN_S = 12.0
"""Longer than `STALLED_S`: a job that is stalled from its start has a finding about that alone."""
WAKES = 3
WAKES_PER_S = 0.6
"""Wake-ups of the main thread that still count as stalled: a DataLoader polls every 5 s."""
WOKEN_SPAN_S = 8.0
_WOKEN_BEFORE = 5.0
"""Times for each time limit: a thread whose wait only times out is woken once by that."""
RECEIVES_PER_S = 1.5
"""Of a wait without a time limit, which nothing ends but what it waits for."""
_USUAL_LIMIT_S = 0.25
SWITCHES_PER_SAMPLE = 10
SAMPLING_S = 1.0
"""Seconds within which py-spy has taken the stacks of a process, also on a loaded machine."""
_LIBRARY_THREADS = (*THREADS_OF_A_GROUP, "pt_tcpstore", "cuda-")
"""How names of threads begin that wake up by themselves: the transport of gloo each 10 ms, the
watchdog of NCCL, the store of ranks and the CUDA driver now and then (torch 2.13)."""
COUNTED_S = 3.5
"""Switches are counted every few seconds (`STATUS_S` of `mpwatch.collect.process.process_reader`):
those caused by taking stacks may show in a reading this much later."""


def quiet_s(process: Process, index: Index) -> float | None:
    """Seconds for which a process has used practically no cpu; `None` if that was not watched.

    The fold's own `still_s` starts again at every tick of cpu time, and a loop that polls every
    five seconds collects one now and then; here such ticks do not count. Work that sleeps most of
    the time shows in how often it wakes up, and in what its main thread reads: a process that gets
    an item of a queue every few seconds makes progress. So does a rank that begins or ends a wait
    for the others.
    """
    return _quiet_s(index, process.process)


@derived
def _quiet_s(index: Index, identity: ProcessId) -> float | None:
    process, habit = index.snapshot.get(identity), index.snapshot.habits.get(identity)
    quiet = _counted_quiet_s(index, process) if process is not None else None
    if quiet is None or habit is None or habit.moved_s is None:
        return quiet
    return min(quiet, max(0.0, index.snapshot.at_s - habit.moved_s))


def _counted_quiet_s(index: Index, process: Process) -> float | None:
    """The same by counters: a step in which a rank only sleeps or reads does not show in them."""
    history = index.history
    spins = spinning(index).get(process.process, ())
    if any(_could_run(index, each) for each in process.threads if each not in spins):
        return 0.0
    thread = main_thread(process)
    still_s = _still_s(index, process, spins)
    # Going from one wait to another takes no cpu that could be measured.
    waits_s = thread.waits_s if thread is not None else None
    series = history.of(process.process, "cpu_percent")
    waits_s = _least(waits_s, _read_nothing_s(index, process.process))
    if len(series) < 2:
        return _least(still_s, waits_s) if still_s is not None else None
    switches = history.of(process.process, "voluntary_switches")
    woken_s = None
    if len(switches) >= 2:
        woken_s = _rarely_woken_s(
            switches,
            history.of(process.process, "stack_stops"),
            history.of(process.process, "tracer_wakes"),
        )
        if _began_before(index, still_s) and woken_s >= switches[-1].at_s - switches[0].at_s:
            woken_s = still_s  # it was rarely woken for as long as that was counted
    at_most_s = _least(waits_s, woken_s)
    if at_most_s is not None and (still_s or 0.0) >= at_most_s:
        return at_most_s
    if spins:
        return _least(still_s or 0.0, at_most_s)  # the cpu time of the process is that of these
    return _least(max(_idle_s(series, at_most_s), still_s or 0.0), at_most_s)


def _still_s(index: Index, process: Process, spins: Sequence[Thread]) -> float | None:
    """For how long its main thread has not run; of the time before the watch, no thread has.

    What the process did before, the kernel tells of each thread alone (`ThreadSample.ran_at_s`).
    Where some threads spin, none of the others has.
    """
    thread = main_thread(process)
    still_s = thread.still_s if thread is not None else None
    others = [
        each.still_s or 0.0
        for each in process.threads
        if not _polls_for_itself(each) and each not in spins
    ]
    if still_s is not None and spins:
        return min([still_s, *others])
    if still_s is None or not _began_before(index, still_s):
        return still_s
    return max(watched_s(index), min(still_s, *others)) if others else still_s


def _polls_for_itself(thread: Thread) -> bool:
    """Whether a thread looks for work of its library many times a second, and does none without."""
    return thread.name == HOOK_THREAD or thread.name.startswith(_LIBRARY_THREADS)


def _began_before(index: Index, lasting_s: float | None) -> bool:
    """Whether what has lasted for so long began before the job was watched."""
    started_at_s = index.history.started_at_s
    return started_at_s is not None and (lasting_s or 0.0) > index.snapshot.at_s - started_at_s


def _could_run(index: Index, thread: Thread) -> bool:
    """Whether a thread runs, or waits for a free core to; one that tries for a lock file does not.

    The hook's thread answers the observer.
    """
    is_of_job = thread.state == "R" and thread.name != HOOK_THREAD
    return is_of_job and shape_in(index, thread.stack) != "lock-file"


def _read_nothing_s(index: Index, identity: ProcessId) -> float | None:
    """Seconds since the main thread was seen to have read more; `None` if it never was.

    What it writes does not count: a loop whose waits time out may log that.
    """
    series = index.history.of(identity, "main_read_bytes")
    return index.snapshot.at_s - series[-1].at_s if len(series) > 1 else None


def _least(one: float | None, other: float | None) -> float | None:
    """The smaller of two of which either may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _idle_s(cpu_percent: Series, enough_s: float | None) -> float:
    """Seconds since it last used more than a tick or two of cpu, or since the first point.

    The search ends where `enough_s` is reached: a longer time makes no difference to the caller.
    """
    moments, values = columns(cpu_percent)
    last_s, used_s = moments[-1], 0.0
    for index in range(len(moments) - 1, 0, -1):
        at_s = moments[index]
        idle_s = last_s - at_s
        if enough_s is not None and idle_s >= enough_s:
            return idle_s
        more_s = values[index] / 100 * (at_s - moments[index - 1])
        used_s += more_s
        if more_s > TICK_S or used_s > TICK_S + IDLE_SHARE * (last_s - moments[index - 1]):
            return idle_s
    return last_s - moments[0]


def _rarely_woken_s(switches: Series, stack_stops: Series, tracer_wakes: Series) -> float:
    """Seconds for which the main thread woke up no more often than a poll every few seconds."""
    since_s = last_s = switches[-1].at_s
    woken = 0.0
    for at_s, more in _wakes(switches, stack_stops, tracer_wakes):
        woken += more
        if woken > WAKES + WAKES_PER_S * (last_s - at_s):
            break
        since_s = at_s
    return last_s - since_s


def woken_per_s(index: Index, process: Process, span_s: float = WOKEN_SPAN_S) -> float | None:
    """How often a second its main thread has woken up lately; `None` if that was not watched.

    Args:
        index: The snapshot.
        process: The process.
        span_s: Over so many seconds, at least: `COUNTED_S` or more.
    """
    history, identity = index.history, process.process
    switches = history.of(identity, "voluntary_switches")
    if len(switches) < 2:
        return None
    stops, wakes = history.of(identity, "stack_stops"), history.of(identity, "tracer_wakes")
    last_s, woken = switches[-1].at_s, 0.0
    for at_s, more in _wakes(switches, stops, wakes):
        woken += more
        if last_s - at_s >= span_s:
            return woken / (last_s - at_s)
    return None


def gets_before_limit(
    index: Index,
    process: Process,
    span_s: float = WOKEN_SPAN_S,
    endless_per_s: float = RECEIVES_PER_S,
) -> bool:
    """Whether a main thread is woken up far more often than the time limit of its wait does it.

    So it gets something: what is received from a socket is in no count of bytes read. The timers of
    an event loop wake one up as well.

    Args:
        index: The snapshot.
        process: The process.
        span_s: See `woken_per_s`.
        endless_per_s: How often a second is enough where the wait has no time limit.
    """
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    per_s = woken_per_s(index, process, span_s)
    if per_s is None:
        return False
    if wait is None:  # found between two waits, so that its limit is not known
        return per_s * _USUAL_LIMIT_S >= _WOKEN_BEFORE
    if wait.timeout_s is None:
        return per_s >= endless_per_s
    return per_s * wait.timeout_s >= _WOKEN_BEFORE


def _wakes(
    switches: Series, stack_stops: Series, tracer_wakes: Series
) -> Iterator[tuple[float, float]]:
    """How often the main thread woke up after each reading of its switches, the last one first.

    Each stop of the process for its stacks counts as five to ten switches (measured with py-spy
    0.4). That many are subtracted, and no more: otherwise a process whose
    stacks are taken all the time would seem stalled. Switches that the other threads of the process
    show to be the work of a tracer are subtracted, too: another observer may take its stacks.

    Yields:
        The time of a reading, and the count until the next one.
    """
    moments, counts = columns(switches)
    matched: set[int] = set()
    by_tracers: dict[float, float] = {}
    if tracer_wakes and columns(tracer_wakes)[1][-1] > 0:
        by_tracers = dict(zip(*columns(tracer_wakes), strict=True))
    for index in range(len(moments) - 1, 0, -1):
        at_s = moments[index - 1]
        traced = by_tracers.get(moments[index], 0.0) - by_tracers.get(at_s, 0.0)
        more = max(0.0, counts[index] - counts[index - 1] - max(0.0, traced))
        if more > WAKES and _was_sampled(stack_stops, at_s, moments[index], matched):
            more -= min(more, SWITCHES_PER_SAMPLE)
        yield at_s, max(0.0, more)


def _was_sampled(stack_stops: Series, from_s: float, to_s: float, matched: set[int]) -> bool:
    """Whether switches counted in between may have been caused by taking stacks.

    Args:
        stack_stops: When stacks were taken.
        from_s: When they were counted before.
        to_s: When they were counted again; stacks taken before may be noted a little later.
        matched: Places in `stack_stops` already matched; the place found is added.
    """
    for place in range(first_at(stack_stops, to_s + SAMPLING_S) - 1, -1, -1):
        if stack_stops[place].at_s < from_s - COUNTED_S:
            return False
        if place not in matched:
            matched.add(place)
            return True
    return False


def is_stalled(process: Process, index: Index, at_least_s: float = STALLED_S) -> bool:
    """Whether a process is stalled: without progress for at least some seconds."""
    quiet = quiet_s(process, index)
    return quiet is not None and quiet >= at_least_s


def are_stalled(processes: Iterable[Process], index: Index) -> bool:
    """Whether all of some processes are stalled; true of no processes."""
    return all(is_stalled(process, index) for process in processes)


def mean_cpu_percent(process: Process, history: History, over_s: float = 15.0) -> float | None:
    """CPU use over the last seconds; `None` if it was watched for less than half of that."""
    return _mean_since(history.of(process.process, "cpu_percent"), over_s, 1, over_s / 2)


def _mean_since(series: Series, over_s: float, at_least: int, at_least_s: float) -> float | None:
    """The mean of the last seconds; `None` of fewer points, or where they span less."""
    if len(series) < at_least:
        return None
    last_s = series[-1].at_s
    first = first_at(series, last_s - over_s)
    count = len(series) - first
    if count < at_least or last_s - series[first].at_s < at_least_s:
        return None
    return sum(values_of(series[first:])) / count


def watched_s(index: Index) -> float:
    """How long the job has been observed."""
    started_at_s = index.history.started_at_s
    return 0.0 if started_at_s is None else index.snapshot.at_s - started_at_s


def wait_share(process: Process, history: History, over_s: float = 30.0) -> float | None:
    """Share of the last seconds in which it waited as DataLoaders wait, 0 to 1.

    Returns:
        The share of samples; `None` where there were fewer than `SAMPLES`, or over less than
        `SHARE_SPAN_S`.
    """
    return _mean_since(history.of(process.process, "loader_wait"), over_s, SAMPLES, SHARE_SPAN_S)


def waiting_s(process: Process, history: History) -> float:
    """Seconds for which every reading has found the process waiting as DataLoaders wait."""
    series = history.of(process.process, "loader_wait")
    since_s = None
    for point in reversed(series):
        if point.value < 1:
            break
        since_s = point.at_s
    return 0.0 if since_s is None else series[-1].at_s - since_s


def last_transfer_s(index: Index, process: Process) -> float:
    """When a process has last read, written, or made progress that its hook counts.

    What a process with a hook writes is what its hook sends as well, so that only reads and
    progress count there. Infinity where that is not known: the first point of a series is that of
    the first reading.
    """
    written = index.history.of(process.process, "written_bytes")
    read = index.history.of(process.process, "main_read_bytes")
    if not written:
        return float("inf")
    wrote = written[:1] if process.hook.state == "ready" else written[-1:]
    counted = [each.last_s for each in index.snapshot.progress if each.process == process.process]
    return max([*counted, *(point.at_s for point in (*wrote, *read[-1:]))])
