"""The threads of a process and their waits; a thread is read again only if it has run since."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from heapq import nsmallest
from operator import itemgetter
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import OpenFiles, Stat
from mpwatch.collect.process.syscall_waits import WaitResolver, may_lie_in_a_mapping, parse_syscall
from mpwatch.model.samples import ThreadSample
from mpwatch.model.sanitize import clean

THREADS_LIMIT = 4096
ASKED_LIMIT = 16
"""Of so many threads of a process, and of the main one, the kernel is asked when they last ran: 0.1
ms each, once."""
TRACED_NS = 50_000
"""A thread that a tracer wakes runs for 7 us (py-spy 0.4, Linux 6.18), several times that on a busy
machine. A thread of OpenMP that gets work runs for longer, since it looks for more before it
sleeps."""
_FROM_CALL = frozenset(("poll", "pipe-read", "socket-read", "accept", "child", "timer"))


LastRun: TypeAlias = Callable[[bool, str, Stat], "float | None"]


class ThreadReading(Struct, frozen=True):
    """One thread, with counters that show whether it has run since."""

    counters: bytes
    """`schedstat`: time run, time waited, times scheduled."""
    call: bytes
    """`syscall`, arguments, stack and instruction pointer included."""
    sample: ThreadSample


def read_threads(
    proc: str,
    pid: int,
    thread_count: int,
    known: dict[int, ThreadReading],
    resolver: WaitResolver | None,
    read: Callable[[str], bytes] = procfs.read,
    last_run: LastRun | None = None,
) -> dict[int, ThreadReading]:
    """Read all threads, main thread first, at most `THREADS_LIMIT`.

    A thread that sleeps and has not been scheduled since the last reading is still in the same
    call: one read of `schedstat` (5 us) instead of `stat`, `syscall`, `wchan` and what they lead to
    (40 us), and most threads of a job sleep.

    Args:
        proc: Path of procfs.
        pid: The process.
        thread_count: Number of its threads: while it is the same and all known ones exist, the
            threads are not listed again.
        known: The result of the last call.
        resolver: Resolves the waits of blocked calls; `None` leaves `waits_on` empty.
        read: Reads files that are read repeatedly.
        last_run: Tells when a thread that is new here last ran, from whether it is the main thread,
            its folder and its `stat`.
    """
    if len(known) == thread_count:
        found = _read_these(proc, pid, list(known), known, resolver, read, last_run)
        if len(found) == thread_count:
            return found
        known = found
    tids = procfs.task_ids(proc, pid)[:THREADS_LIMIT]
    return _read_these(proc, pid, tids, known, resolver, read, last_run)


def forget(files: OpenFiles, proc: str, pid: int, tid: int) -> None:
    """Close the files of a thread that has ended."""
    for name in ("schedstat", "syscall"):
        files.forget(f"{proc}/{pid}/task/{tid}/{name}")


def without_unsure(known: dict[int, ThreadReading]) -> dict[int, ThreadReading]:
    """The threads whose waits do not depend on newer mappings.

    The mappings may have been read after a thread began to wait on a semaphore in them. Locks of
    one process are marked as such, and hundreds of feeder threads wait for one.
    """
    return {
        tid: thread
        for tid, thread in known.items()
        if thread.sample.waits_on is None
        or thread.sample.waits_on.kind != "futex"
        or not may_lie_in_a_mapping(thread.call)
    }


def tracer_wakes(pid: int, before: dict[int, ThreadReading], now: dict[int, ThreadReading]) -> int:
    """How often a tracer has woken each thread between two readings; 0 if that is not certain.

    A tracer that takes stacks stops all threads and wakes them again, also those that wait for what
    never comes: two switches of 7 microseconds each (py-spy 0.4, Linux 6.18). Two threads besides
    the main one have to agree, give or take one switch that is counted while they are stopped. They
    must not have run for longer, nor wait in a call that ends by itself: threads that poll, and
    those of a pool that get their work together, wake up equally often, too.
    """
    woken: list[tuple[int, ThreadReading, ThreadReading]] = []
    for tid, thread in now.items():
        known = before.get(tid)
        if tid == pid or known is None:
            continue
        if thread is known or not thread.counters or not known.counters:
            return 0
        woken.append((_scheduled(thread) - _scheduled(known), known, thread))
    fewest = nsmallest(2, woken, key=itemgetter(0))
    if len(fewest) < 2 or fewest[1][0] - fewest[0][0] > 1:
        return 0
    is_certain = all(_only_woken(count, known, thread) for count, known, thread in fewest)
    return fewest[0][0] if is_certain else 0


def _only_woken(count: int, known: ThreadReading, thread: ThreadReading) -> bool:
    """Whether a thread was woken so often and has gone on with the same wait without end."""
    wait = thread.sample.waits_on
    return (
        wait is not None
        and wait.timeout_s is None
        and thread.call == known.call
        and _ran_ns(thread) - _ran_ns(known) <= count * TRACED_NS
    )


def is_any_stuck(proc: str, pid: int) -> bool:
    """Whether a thread is in uninterruptible sleep: it may hold the lock of the address space."""
    for tid in procfs.task_ids(proc, pid)[:THREADS_LIMIT]:
        try:
            if procfs.parse_stat(procfs.read(f"{proc}/{pid}/task/{tid}/stat", 4096)).state == "D":
                return True
        except (OSError, ValueError):
            continue
    return False


def counters(folder: str, read: Callable[[str], bytes]) -> bytes | None:
    """The scheduler's counters; empty where it does not count, `None` once the thread has ended."""
    try:
        found = read(f"{folder}/schedstat")
    except ProcessLookupError:
        return None
    except OSError:  # ENOENT also where the kernel has no such file (CONFIG_SCHED_INFO)
        return b""
    return b"" if found.startswith(b"0 0 0") else found


def _read_these(
    proc: str,
    pid: int,
    tids: list[int],
    known: dict[int, ThreadReading],
    resolver: WaitResolver | None,
    read: Callable[[str], bytes],
    last_run: LastRun | None,
) -> dict[int, ThreadReading]:
    """Read the threads with these numbers that still exist."""
    found: dict[int, ThreadReading] = {}
    for place, tid in enumerate(tids):
        folder = f"{proc}/{pid}/task/{tid}"
        now, before = counters(folder, read), known.get(tid)
        if now is None:
            continue
        if before is not None and now and now == before.counters and before.sample.state in "SI":
            found[tid] = before
            continue
        is_asked = before is None and (place < ASKED_LIMIT or tid == pid)
        asked = partial(last_run, tid == pid) if last_run is not None and is_asked else None
        thread = _read_thread(proc, folder, now, before, resolver, read, asked)
        if thread is not None:
            found[tid] = thread
    return found


def _read_thread(
    proc: str,
    folder: str,
    now: bytes,
    before: ThreadReading | None,
    resolver: WaitResolver | None,
    read: Callable[[str], bytes],
    last_run: Callable[[str, Stat], float | None] | None,
) -> ThreadReading | None:
    """One thread that has run since the last reading, or `None` once it has ended."""
    try:
        line = read(f"{folder}/syscall")
    except ProcessLookupError:
        return None
    except OSError:  # hidden, or the kernel does not report it (CONFIG_HAVE_ARCH_TRACEHOOK)
        line = b""
    if before is not None and now and line == before.call and _follows_from_call(before.sample):
        sample, waits = before.sample, before.sample.waits_on
        if resolver is not None and waits is not None and waits.kind == "timer":
            waits = resolver.resolve(parse_syscall(line), sample.state, sample.wchan)
        ticks = _ticks(now)
        is_same = ticks == sample.cpu_ticks and waits is sample.waits_on
        if not is_same or sample.ran_at_s is not None:
            sample = replace(sample, cpu_ticks=ticks, waits_on=waits, ran_at_s=None)
        return ThreadReading(now, line, sample)
    try:
        stat = procfs.parse_stat(procfs.read(f"{folder}/stat", 4096))
    except (OSError, ValueError):
        return None
    if stat.state == "t" and before is not None and procfs.is_stopped_for_its_stack(proc, folder):
        return before
    is_blocked = stat.state not in "RZX"
    call = parse_syscall(line) if is_blocked else None
    wchan = _wchan(folder) if is_blocked else None
    sample = ThreadSample(
        tid=stat.pid,
        name=stat.name,
        state=stat.state,
        cpu_ticks=_ticks(now) if now else stat.cpu_ticks,
        wchan=wchan,
        syscall=call.number if call is not None else None,
        waits_on=resolver.resolve(call, stat.state, wchan) if resolver is not None else None,
        start_ticks=stat.start_ticks,
        ran_at_s=last_run(folder, stat) if last_run is not None and is_blocked else None,
    )
    return ThreadReading(now, line, sample)


def _follows_from_call(sample: ThreadSample) -> bool:
    """Whether what a thread waits for follows from the arguments of its call, times aside.

    Of 64 workers that wake up once a second this saves a fifth of the cpu of a reading (20 against
    25 ms on a loaded machine, on which htop takes 68).
    """
    waits = sample.waits_on
    if waits is None or sample.state != "S":
        return False
    return waits.kind in _FROM_CALL or (waits.kind == "futex" and waits.timeout_s is None)


def _ticks(counters: bytes) -> int:
    """Cpu time in clock ticks: `schedstat` counts the nanoseconds that `stat` shows rounded."""
    return int(counters[: counters.index(b" ")]) * procfs.TICKS_PER_S // 1_000_000_000


def _ran_ns(thread: ThreadReading) -> int:
    """How long a thread has run, in nanoseconds."""
    return int(thread.counters.split()[0])


def _scheduled(thread: ThreadReading) -> int:
    """How often a thread was given a cpu."""
    return int(thread.counters.split()[2])


def _wchan(folder: str) -> str | None:
    """The kernel function it sleeps in; `None` where hidden (the kernel shows 0) or running."""
    try:
        text = procfs.read(f"{folder}/wchan", 256)
    except OSError:
        return None
    return _clean_wchan(text) if text not in (b"", b"0") else None


@lru_cache(maxsize=256)
def _clean_wchan(raw: bytes) -> str:
    """The name of a kernel function; a job knows a dozen."""
    return clean(raw)
