"""The threads of a process: what each does or waits for, read again only if it has run since."""

from __future__ import annotations

from typing import NamedTuple

from mpwatch.collect import procfs
from mpwatch.collect.blocked import WaitResolver, parse_syscall
from mpwatch.model.samples import ThreadSample
from mpwatch.model.text import clean

THREADS_LIMIT = 4096


class KeptThread(NamedTuple):
    """A reading with the scheduler's counters of that moment."""

    counters: bytes
    """`schedstat`: time run, time waited, times scheduled. Unchanged: it has not run since."""
    sample: ThreadSample


def read_threads(
    proc: str,
    pid: int,
    kept: dict[int, KeptThread],
    resolver: WaitResolver | None,
) -> dict[int, KeptThread]:
    """Read all threads, main thread first.

    A thread that sleeps and has not been scheduled since the last reading is still in the same
    call: one read of `schedstat` (5 us) instead of `stat`, `syscall`, `wchan` and what they lead to
    (40 us), and most threads of a job sleep.

    Args:
        proc: Where procfs is.
        pid: The process.
        kept: What the last call returned.
        resolver: Says what blocked calls wait for; `None` leaves `waits_on` open.
    """
    found: dict[int, KeptThread] = {}
    for tid in procfs.task_ids(proc, pid)[:THREADS_LIMIT]:
        folder = f"{proc}/{pid}/task/{tid}"
        before = kept.get(tid)
        counters = _counters(folder)
        has_rested = before is not None and counters != b"" and counters == before.counters
        if before is not None and has_rested and before.sample.state in ("S", "I"):
            found[tid] = before
            continue
        sample = _read_thread(folder, resolver)
        if sample is not None:
            found[tid] = KeptThread(counters, sample)
    return found


def _counters(folder: str) -> bytes:
    """The scheduler's counters; empty where the kernel does not count (CONFIG_SCHED_INFO)."""
    try:
        counters = procfs.read(f"{folder}/schedstat", 256)
    except OSError:
        return b""
    return b"" if counters.startswith(b"0 0 0") else counters


def _read_thread(folder: str, resolver: WaitResolver | None) -> ThreadSample | None:
    """One thread, or `None` once it has ended."""
    try:
        stat = procfs.parse_stat(procfs.read(f"{folder}/stat", 4096))
    except (OSError, ValueError):
        return None
    call, wchan = None, None
    if stat.state not in "RZX":
        wchan = _wchan(folder)
        try:
            call = parse_syscall(procfs.read(f"{folder}/syscall", 512))
        except OSError:
            call = None
    waits = resolver.resolve(call, stat.state, wchan) if resolver is not None else None
    return ThreadSample(
        tid=stat.pid,
        name=stat.name,
        state=stat.state,
        cpu_ticks=stat.cpu_ticks,
        wchan=wchan,
        syscall=call.number if call is not None else None,
        waits_on=waits,
        start_ticks=stat.start_ticks,
    )


def _wchan(folder: str) -> str | None:
    """The kernel function it sleeps in; `None` where hidden (the kernel shows 0) or running."""
    try:
        text = procfs.read(f"{folder}/wchan", 256)
    except OSError:
        return None
    return clean(text) if text not in (b"", b"0") else None
