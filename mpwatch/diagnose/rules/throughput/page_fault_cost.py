"""A process spends its cpu time in the kernel, which maps and clears fresh memory for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from msgspec import Struct

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.growth.newest import own_lines
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.diagnose.analysis.throughput.messages import (
    LARGE_BYTES,
    bytes_per_s,
    is_receiving,
    on_its_way_to,
    receives,
)
from mpwatch.diagnose.analysis.throughput.shares import (
    OVER_S,
    WATCHED_S,
    Place,
    core_share,
    is_computing,
    main_account,
    shares,
    shares_lately,
    times_faster,
    work_place,
)
from mpwatch.model.account import COPYING, UNPICKLING
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
READ_PART = 0.1
"""Of the memory mapped anew: a process that reads this much maps it for what it reads, as a message
is copied two or three times."""
RECENT = 3
"""Buckets of the account: a line that was seen in none of them is one that a process has left."""


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
    received = _received(index, process, found[0][2])
    place = _place(index, processes)
    line = place.words if place is not None and place.is_main else ""
    if received is not None:
        line = received.place  # the line of most work may be of what it does with it
    at = " for what it receives" * (received is not None) + (f" at {line}" if line else "")
    lines = None if line else own_lines(process)
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
            *((received.words,) if received is not None else ()),
            *(
                (f"{place.part:.0%} of the work whose line is known: {place.words}",)
                if place
                else ()
            ),
            *((f"{called(process)} was last seen at {lines}",) if lines else ()),
            f"without this time it would be at most {times_faster(lost)} as fast",
        ),
        cause=_RECEIVED_CAUSE
        if received is not None
        else (
            "Memory that was just mapped has no pages: at the first use of each the kernel finds "
            "one, clears it and maps it. Large blocks (malloc's from 128 KiB on, arrays, mmap) are "
            "returned to the system when they are freed, and the next one starts anew. Shared "
            "memory that is created for each batch does the same."
        ),
        advice=_RECEIVED_ADVICE
        if received is not None
        else (
            "Allocate large buffers once and use them again (out= of numpy and torch, a buffer of "
            "the object), and no larger than needed. Where malloc makes them (numpy, torch on the "
            "CPU), MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ in the environment, set to 1 "
            "GiB, let it keep freed blocks; the process then stays larger."
        ),
    )


def _place(index: Index, processes: Sequence[Process]) -> Place | None:
    """The function of most of the work lately; `None` where the processes have left it."""
    place = work_place(index, processes, is_computing, shares_lately)
    if place is None:
        return None
    where, _, function = place.words.partition(" ")
    file = where.rpartition(":")[0]
    for process in processes:
        thread = main_thread(process)
        for frame in thread.stack if thread is not None else ():
            if (frame.file.rpartition("/")[2], frame.function) == (file, function):
                return place
        account = main_account(index, process.process)
        for bucket in account.buckets[-RECENT:] if account is not None else ():
            for each in bucket.tally.seen:
                if each.place.startswith(f"{file}:") and each.place.endswith(f" {function}"):
                    return place
    return None


class _Received(Struct, frozen=True):
    """Messages that a process receives into fresh memory."""

    place: str
    """The line that receives; empty where no stack shows it."""
    words: str


def _received(index: Index, process: Process, use: _Use) -> _Received | None:
    """The messages for which a process needs fresh memory; `None` where others may need it.

    Bytes that are read count files as well. Each message is read in parts, joined and loaded, so
    that the memory is several times the message.
    """
    per_s = bytes_per_s(index, process, is_written=False)
    if per_s is None or per_s < READ_PART * use.faults * PAGE_BYTES:
        return None
    if not is_receiving(index, process):
        return None
    thread, message = main_thread(process), on_its_way_to(index, process)
    is_large = message is not None and message.n_bytes >= LARGE_BYTES
    frame = user_frame(thread.stack) if thread is not None and receives(thread) else None
    lines = [
        each.activity.place
        for each in shares_lately(index, process)
        if each.activity.what in (COPYING, UNPICKLING) and each.activity.place
    ]
    place = frame_words(frame) if frame is not None else next(iter(lines), "")
    words = f"{called(process)} reads {bytes_text(per_s)}/s"
    if message is not None and is_large:
        size = bytes_text(message.n_bytes)
        words = f"{words}, and a message of at least {size} is on its way to it"
        sender = user_frame(message.thread.stack) if message.is_written else None
        if message.is_written:
            at = f" at {frame_words(sender)}" if sender is not None else ""
            words = f"{words} from {called(message.process)}{at}"
    return _Received(place, words)


_RECEIVED_CAUSE = (
    "Each message is received into memory of its own: the parts that are read, the whole that "
    "they are joined to, and the objects that are loaded from it. For large blocks that is memory "
    "that was just mapped, and the kernel finds, clears and maps each page of it. So the time "
    "grows with the bytes that are sent."
)
_RECEIVED_ADVICE = (
    "Send less first: look at what the sender gives to each message, and leave out what the "
    "receiver does not use; or hand large arrays over in shared memory (tensors through a queue of "
    "torch.multiprocessing). Settings of malloc make the rest only a little cheaper."
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
