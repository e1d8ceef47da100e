"""A process spends its cpu time in the kernel, which maps and clears fresh memory for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from msgspec import Struct

from mpwatch.diagnose.analysis.growth.newest import own_lines
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.throughput.shares import (
    OVER_S,
    WATCHED_S,
    core_share,
    shares,
    times_faster,
    work_place,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, ProcessMetric, first_at, rise
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.units import bytes_text

RULE = "page-fault-cost"
IS_OF_SHARES = True
POINTS = 6
KERNEL_SHARE = 0.5
"""Of the cpu time of the process."""
LOST_SHARE = 0.35
"""Of the time of the process, waits for a free core divided as its cpu time."""
PAGE_BYTES = 4096
FAULT_MIN_S, FAULT_MAX_S = 0.15e-6, 15e-6
"""Kernel time for one fault on a page of 4 KiB: 0.25 us to map and clear it on an idle machine, ten
times as much in a virtual one. More time than this for each fault is of something else."""
FAULTS_PER_S = 5_000
CORE_SHARE = 0.2
SHOWN = 2


class _Use(Struct, frozen=True):
    """What a process used each second."""

    cpu: float
    """Cores."""
    kernel: float
    """Cores, the part of `cpu` in the kernel."""
    faults: float


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for the processes with much kernel time for page faults."""
    found = []
    for process in index.snapshot.living():
        if process.role in SERVICE_ROLES:
            continue
        use = _use(index, process)
        if use is None or not FAULT_MIN_S <= use.kernel / use.faults <= FAULT_MAX_S:
            continue
        lost = min(1.0, use.cpu + core_share(index, process)) * use.kernel / use.cpu
        if lost >= LOST_SHARE and shares(index, process):
            found.append((lost, process, use))
    if found:
        yield _finding(index, sorted(found, key=itemgetter(0), reverse=True))


def _use(index: Index, process: Process) -> _Use | None:
    """What it used lately; `None` where it was not watched, or has few faults or kernel time."""
    history, identity = index.history, process.process
    # 0.07 ms for 64 workers, which have few faults: the rest takes twice as long.
    if rise(history.of(identity, "minor_faults"), within_s=OVER_S) < FAULTS_PER_S * WATCHED_S:
        return None
    faults = _per_s(history, identity, "minor_faults")
    if faults is None or faults < FAULTS_PER_S:
        return None
    ticks = _per_s(history, identity, "system_ticks")
    loads = history.of(identity, "cpu_percent")
    recent = loads[first_at(loads, index.snapshot.at_s - OVER_S) :]
    if ticks is None or not recent:
        return None
    cpu = sum(point.value for point in recent) / len(recent) / 100
    kernel = min(cpu, ticks / index.snapshot.ticks_per_s)
    return _Use(cpu, kernel, faults) if cpu and kernel >= KERNEL_SHARE * cpu else None


def _per_s(history: History, process: ProcessId, metric: ProcessMetric) -> float | None:
    """By how much a counter rose each second; `None` where it was watched too shortly."""
    series = history.of(process, metric)
    if len(series) < POINTS:
        return None
    last_s = series[-1].at_s
    span_s = last_s - series[first_at(series, last_s - OVER_S)].at_s
    return rise(series, within_s=OVER_S) / span_s if span_s >= WATCHED_S else None


def _finding(index: Index, found: Sequence[tuple[float, Process, _Use]]) -> Finding:
    """Describe the faults and the line."""
    lost, process, _ = found[0]
    processes = [each for _, each, _ in found]
    place = work_place(index, processes)
    at = f" at {place.words}" if place is not None and place.is_main else ""
    lines = None if at else own_lines(process)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        others=tuple(each.process for each in processes[1:]),
        summary=(
            f"{called(process)} spends {lost:.0%} of the time in the kernel, which gives it fresh "
            f"memory{at}"
        ),
        evidence=(
            *(_words(each, use) for _, each, use in found[:SHOWN]),
            *(_core_words(index, process)),
            *_more_words(found[SHOWN:]),
            *(
                (f"{place.part:.0%} of the work whose line is known: {place.words}",)
                if place
                else ()
            ),
            *((f"{called(process)} was last seen at {lines}",) if lines else ()),
            f"without this time it would be at most {times_faster(lost)} as fast",
        ),
        cause=(
            "Memory that was just mapped has no pages: at the first use of each the kernel finds "
            "one, clears it and maps it. Large blocks (malloc's from 128 KiB on, arrays, mmap) are "
            "returned to the system when they are freed, and the next one starts anew. Shared "
            "memory that is created for each batch does the same."
        ),
        advice=(
            "Allocate large buffers once and use them again (out= of numpy and torch, a buffer of "
            "the object), and no larger than needed. Where malloc makes them (numpy, torch on the "
            "CPU), MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ in the environment, set to 1 "
            "GiB, let it keep freed blocks; the process then stays larger."
        ),
    )


def _more_words(found: Sequence[tuple[float, Process, _Use]]) -> Iterator[str]:
    """The least share of the processes that are not shown one by one."""
    if found:
        least = min(lost for lost, _, _ in found)
        names = all_called(process for _, process, _ in found)
        yield f"{names}: at least {least:.0%} of the time as well"


def _words(process: Process, use: _Use) -> str:
    """What one process used each second."""
    mapped = bytes_text(use.faults * PAGE_BYTES)
    return (
        f"{called(process)}: {use.kernel / use.cpu:.0%} of its cpu time is kernel time "
        f"({use.kernel:.2f} of {use.cpu:.2f} cores), at {use.faults:,.0f} minor page faults each "
        f"second: {mapped}/s of memory mapped anew, at 4 KiB a page"
    )


def _core_words(index: Index, process: Process) -> tuple[str, ...]:
    """How much of the time is a wait for a core, where that is much."""
    share = core_share(index, process)
    if share < CORE_SHARE:
        return ()
    return (
        f"{called(process)} waits for a free core {share:.0%} of the time, which is counted "
        "here as its cpu time is",
    )
