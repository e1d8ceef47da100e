"""Children that were started during an injection, just before their parent had the hook.

A child forked before its parent had the hook has none, and is in no list taken before the fork.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable

from mpwatch.attach.results import Refused
from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process.procfs import age_s, stat_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample

MIN_AGE_S = 0.05
"""Age from which a child is examined: before its exec it looks like its parent, and after `vfork`
it shares the parent's memory."""
WITHIN_S = 0.5
_LOOK_S = 0.02
_CHEAP = ReadRequest(threads=False, links_count=0, maps_count=0, memory_count=0, gpu=False)

Sleep = Callable[[float], None]


def late_children(
    known: Iterable[ProcessId], proc: str = "/proc", sleep: Sleep = time.sleep
) -> list[ProcSample]:
    """The children of these processes that are not among them, with their descendants.

    Waits until each child is `MIN_AGE_S` old, for at most `WITHIN_S` in all.

    Args:
        known: Processes that have been handled already.
        proc: Path of procfs.
        sleep: Replaces `time.sleep` in tests.
    """
    listed = {process.pid: process for process in known}
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        pids = [pid for parent in listed for pid in _children(parent, proc) if pid not in listed]
        young = [pid for pid in pids if _age_s(pid, proc) < MIN_AGE_S]
        if not young or time.monotonic() > deadline_s:
            return [
                sample
                for pid in pids
                if pid not in young
                for sample in _subtree(pid, proc)
                if sample.process.pid not in listed
            ]
        sleep(_LOOK_S)


def _children(pid: int, proc: str) -> list[int]:
    """Pids of the children of all threads of a process; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"{proc}/{pid}/task"):
            with open(f"{proc}/{pid}/task/{tid}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _age_s(pid: int, proc: str) -> float:
    """Seconds since the start of a process; `MIN_AGE_S` if it is gone, so it is not waited for."""
    try:
        return age_s(pid, proc)
    except OSError:
        return MIN_AGE_S


def _subtree(pid: int, proc: str) -> tuple[ProcSample, ...]:
    with contextlib.suppress(OSError, Refused):
        tree = TreeCollector(stat_of(pid, proc).process, proc=proc).collect(_CHEAP)
        if tree is not None:
            return tree.processes
    return ()
