"""The threads of a process: what each does or waits for, read again only if it has run since."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import KeptFiles
from mpwatch.collect.process.schedule import REST_S
from mpwatch.collect.process.syscall_waits import WaitResolver, may_lie_in_a_mapping, parse_syscall
from mpwatch.model.samples import ThreadSample
from mpwatch.model.sanitize import clean

THREADS_LIMIT = 4096
RESTS = 2
"""A thread that has rested for so many readings is asked every `REST_S`; the main thread always."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class KeptThread(NamedTuple):
    """A reading with what tells whether the next one will say the same."""

    counters: bytes
    """`schedstat`: time run, time waited, times scheduled. Unchanged: it has not run since."""
    call: bytes
    """`syscall`, arguments, stack and instruction pointer included."""
    sample: ThreadSample
    asked_at_s: float = 0.0
    rests: int = 0
    """How many times in a row it had not run since the time before."""


_STEADY = frozenset(("poll", "pipe-read", "socket-read", "accept", "child", "timer"))
"""Waits of the same kind as long as call and arguments are the same."""


def read_threads(
    proc: str,
    pid: int,
    thread_count: int,
    kept: dict[int, KeptThread],
    resolver: WaitResolver | None,
    at_s: float = math.inf,
    read: Callable[[str], bytes] = procfs.read,
) -> dict[int, KeptThread]:
    """Read all threads, main thread first.

    A thread that sleeps and has not been scheduled since the last reading is still in the same
    call: one read of `schedstat` (5 us) instead of `stat`, `syscall`, `wchan` and what they lead to
    (40 us), and most threads of a job sleep. One that ran and is back in the very same call needs
    one read more, of `syscall`. One that has rested a few times is left alone for `REST_S`.

    Args:
        proc: Where procfs is.
        pid: The process.
        thread_count: How many threads it has: while that holds and all known ones live, they are
            the ones.
        kept: What the last call returned.
        resolver: Says what blocked calls wait for; `None` leaves `waits_on` open.
        at_s: The moment of the reading; without it nobody is left alone.
        read: Reads the files that are read again and again.
    """
    if len(kept) == thread_count:
        found = _read_these(proc, pid, list(kept), kept, resolver, at_s, read)
        if len(found) == thread_count:
            return found
        kept = found
    tids = procfs.task_ids(proc, pid)[:THREADS_LIMIT]
    return _read_these(proc, pid, tids, kept, resolver, at_s, read)


def still_there(
    folder: str, kept: KeptThread, seen: bytes, read: Callable[[str], bytes]
) -> bytes | None:
    """Ask a thread whether it is in the call in which it was read last.

    Args:
        folder: Where its files are.
        kept: That reading.
        seen: The counters at which this was last found to be so.
        read: Reads the files that are read again and again.

    Returns:
        Its counters, empty where the kernel does not count; `None` if it is not, or that cannot be
        told.
    """
    counters = _counters(folder, read)
    if not counters or counters in (kept.counters, seen):
        return counters
    if not _is_steady(kept.sample):
        return None
    try:
        return counters if read(f"{folder}/syscall") == kept.call else None
    except OSError:
        return None


def forget(files: KeptFiles, proc: str, pid: int, tid: int) -> None:
    """Let go of the files of a thread that has ended."""
    for name in ("schedstat", "syscall"):
        files.forget(f"{proc}/{pid}/task/{tid}/{name}")


def without_unsure(kept: dict[int, KeptThread]) -> dict[int, KeptThread]:
    """The threads that wait for the same whatever is mapped by now.

    The mappings may have been read after a thread began to wait on a semaphore in them. Locks of
    one process are marked as such, and hundreds of feeder threads wait for one.
    """
    return {
        tid: thread
        for tid, thread in kept.items()
        if thread.sample.waits_on is None
        or thread.sample.waits_on.kind != "futex"
        or not may_lie_in_a_mapping(thread.call)
    }


def is_any_stuck(proc: str, pid: int) -> bool:
    """Whether a thread is in uninterruptible sleep: it may hold the lock of the address space."""
    for tid in procfs.task_ids(proc, pid)[:THREADS_LIMIT]:
        try:
            if procfs.parse_stat(procfs.read(f"{proc}/{pid}/task/{tid}/stat", 4096)).state == "D":
                return True
        except (OSError, ValueError):
            continue
    return False


def _read_these(
    proc: str,
    pid: int,
    tids: list[int],
    kept: dict[int, KeptThread],
    resolver: WaitResolver | None,
    at_s: float,
    read: Callable[[str], bytes],
) -> dict[int, KeptThread]:
    """Read the threads with these numbers, as far as they live."""
    found: dict[int, KeptThread] = {}
    for tid in tids:
        before = kept.get(tid)
        if before is not None and tid != pid and _is_left_alone(tid, before, at_s):
            found[tid] = before
            continue
        folder = f"{proc}/{pid}/task/{tid}"
        counters = _counters(folder, read)
        if counters is None:
            continue
        has_rested = before is not None and counters != b"" and counters == before.counters
        if before is not None and has_rested and before.sample.state in ("S", "I"):
            found[tid] = before._replace(asked_at_s=at_s, rests=before.rests + 1)
            continue
        thread = _read_thread(folder, counters, before, resolver, at_s, read)
        if thread is not None:
            found[tid] = thread
    return found


def _is_left_alone(tid: int, before: KeptThread, at_s: float) -> bool:
    """Whether a thread has rested for long and was asked just now; not all in the same moment."""
    return before.rests >= RESTS + tid % 3 and 0.0 <= at_s - before.asked_at_s < REST_S


def _counters(folder: str, read: Callable[[str], bytes]) -> bytes | None:
    """The scheduler's counters; empty where it does not count, `None` once the thread has ended."""
    try:
        counters = read(f"{folder}/schedstat")
    except ProcessLookupError:
        return None
    except OSError:  # ENOENT also where the kernel has no such file (CONFIG_SCHED_INFO)
        return b""
    return b"" if counters.startswith(b"0 0 0") else counters


def _read_thread(
    folder: str,
    counters: bytes,
    before: KeptThread | None,
    resolver: WaitResolver | None,
    at_s: float,
    read: Callable[[str], bytes],
) -> KeptThread | None:
    """One thread that has run since the last reading, or `None` once it has ended."""
    try:
        line = read(f"{folder}/syscall")
    except ProcessLookupError:
        return None
    except OSError:  # hidden, or the kernel does not tell (CONFIG_HAVE_ARCH_TRACEHOOK)
        line = b""
    if before is not None and counters and line == before.call and _is_steady(before.sample):
        return _still_waiting(before, counters, line, resolver, at_s)
    try:
        stat = procfs.parse_stat(procfs.read(f"{folder}/stat", 4096))
    except (OSError, ValueError):
        return None
    is_blocked = stat.state not in "RZX"
    call = parse_syscall(line) if is_blocked else None
    wchan = _wchan(folder) if is_blocked else None
    return KeptThread(
        counters,
        line,
        ThreadSample(
            tid=stat.pid,
            name=stat.name,
            state=stat.state,
            cpu_ticks=_ticks(counters) if counters else stat.cpu_ticks,
            wchan=wchan,
            syscall=call.number if call is not None else None,
            waits_on=resolver.resolve(call, stat.state, wchan) if resolver is not None else None,
            start_ticks=stat.start_ticks,
        ),
        at_s,
    )


def _still_waiting(
    before: KeptThread, counters: bytes, line: bytes, resolver: WaitResolver | None, at_s: float
) -> KeptThread:
    """A thread back in the same call: its cpu time is new, and now and then how long it sleeps."""
    known = before.sample
    ticks = _ticks(counters)
    is_recent = 0.0 <= at_s - before.asked_at_s < REST_S
    if resolver is not None and known.waits_on is not None and known.waits_on.kind == "timer":
        if is_recent:
            at_s = before.asked_at_s
        else:
            waits_on = resolver.resolve(parse_syscall(line), known.state, known.wchan)
            known = replace(known, waits_on=waits_on)
    if ticks != known.cpu_ticks:
        known = replace(known, cpu_ticks=ticks)
    return KeptThread(counters, line, known, at_s)


def _ticks(counters: bytes) -> int:
    """Cpu time in clock ticks: `schedstat` counts the nanoseconds that `stat` shows rounded."""
    return int(counters[: counters.index(b" ")]) * TICKS_PER_S // 1_000_000_000


def _is_steady(sample: ThreadSample) -> bool:
    """Whether it sleeps, and what it waits on follows from the call alone."""
    waits = sample.waits_on
    if waits is None or sample.state != "S":
        return False
    return waits.kind in _STEADY or (waits.kind == "futex" and waits.timeout_s is None)


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
