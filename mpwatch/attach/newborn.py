"""Children that were born while the hook came into their parents, and missed it by a moment.

A child forked before the hook was in its parent has none, and is in no list taken before its birth.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from mpwatch.attach.outcome import Refused
from mpwatch.attach.target import age_s, read_stat
from mpwatch.collect.job.read_context import Wanted
from mpwatch.collect.job.reader import TreeCollector
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample

GROWN_UP_S = 0.05
"""Between fork and exec a child looks like its parent, and after `vfork` shares its memory."""
WITHIN_S = 0.5
_LOOK_S = 0.02
_CHEAP = Wanted(threads=False, links_count=0, maps_count=0, memory_count=0, gpu=False)

Sleep = Callable[[float], None]


def newborn(
    known: Iterable[ProcessId], proc: str = "/proc", sleep: Sleep = time.sleep
) -> list[ProcSample]:
    """The children of these processes that are not among them, with their descendants.

    One that is too young to tell is waited for, unless there are new ones all the time.

    Args:
        known: Processes that have been looked after.
        proc: Where procfs is.
        sleep: Waits.
    """
    listed = {process.pid: process for process in known}
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        pids = [pid for parent in listed for pid in _children(parent, proc) if pid not in listed]
        young = [pid for pid in pids if _age_s(pid, proc) < GROWN_UP_S]
        if not young or time.monotonic() > deadline_s:
            return [
                sample
                for pid in pids
                if pid not in young
                for sample in _family(pid, proc)
                if sample.process.pid not in listed
            ]
        sleep(_LOOK_S)


def _children(pid: int, proc: str) -> list[int]:
    """Children of all threads of a process, none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"{proc}/{pid}/task"):
            with open(f"{proc}/{pid}/task/{tid}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _age_s(pid: int, proc: str) -> float:
    """Seconds since its birth; one that is gone is old enough not to be waited for."""
    try:
        return age_s(pid, proc)
    except OSError:
        return GROWN_UP_S


def _family(pid: int, proc: str) -> tuple[ProcSample, ...]:
    with contextlib.suppress(OSError, Refused):
        tree = TreeCollector(ProcessId(pid, read_stat(pid, proc)[2]), proc=proc).collect(_CHEAP)
        if tree is not None:
            return tree.processes
    return ()
