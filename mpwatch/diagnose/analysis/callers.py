"""The calls that a computing thread does not leave: what all of its stacks have in common.

A single stack shows one line of a loop. The calls in which many stacks of a minute agree show the
loop itself, or the long computation: the innermost of them is what does not return.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mpwatch.describe.account import LEAST_STACKS, inside_words
from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES
from mpwatch.model.account import CALLERS_S, NO_CORE, Callers
from mpwatch.model.snapshot import Process, Thread

DEPTH = 64
"""Calls that are compared, from the outermost on."""
_INSTALLED = ("site-packages", "dist-packages")
COMPUTES = 0.9
"""The share of its time in which a main thread computes, or waits for a core to, and no other."""
LIBRARY_SHARE = 0.2
"""More stacks in installed packages are those of numbers that are computed, as in a training."""
QUIET_S = 5.0
"""The others have waited for so long: a pause between two rounds is shorter."""


def advanced(before: tuple[Callers, ...], thread: Thread, at_s: float) -> tuple[Callers, ...]:
    """The callers with the stack of a thread that computes.

    Args:
        before: As far as they were known.
        thread: A thread whose stack shows where it computes.
        at_s: The time of the reading, monotonic seconds.

    Returns:
        The same if the stack is not a new one. Two stretches of time are kept, so that there are
        always `CALLERS_S` seconds of stacks while the older ones are forgotten.
    """
    taken_s = at_s - (thread.stack_age_s or 0.0)
    if before and taken_s <= before[-1].taken_s:
        return before
    frames = tuple(reversed(own_frames(thread.stack)[-DEPTH:]))
    is_installed = any(part in frames[-1].file for part in _INSTALLED)
    one = Callers(taken_s, taken_s, frames, 1, int(is_installed))
    if not before or taken_s - before[-1].taken_s > CALLERS_S:
        return (one,)
    last = before[-1]
    if taken_s - last.since_s > CALLERS_S:
        return last, one
    return *before[:-1], last.with_later(one)


class Computation(NamedTuple):
    """A main thread that computes in one function of the program and does nothing else."""

    process: Process
    function: str
    """`fit (a.py), called at b.py:9 main`."""
    for_s: float
    stacks: int


def lonely_computations(index: Index, at_least_s: float) -> Iterator[Computation]:
    """Processes that compute in Python alone, read and write nothing, while no other one works.

    Whether such a computation ends cannot be seen from outside of it.
    """
    found = [
        one
        for process in index.snapshot.living()
        if process.role not in SERVICE_ROLES
        and (one := _computation(index, process, at_least_s)) is not None
    ]
    known = {one.process.process for one in found}
    for process in index.snapshot.living() if found else ():
        if process.process not in known and process.role not in SERVICE_ROLES:
            quiet = quiet_s(process, index)
            if quiet is None or quiet < QUIET_S:
                return
    yield from found


def _computation(index: Index, process: Process, at_least_s: float) -> Computation | None:
    """What the main thread of a process has computed, without any progress, for some seconds."""
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not account.uncounted or not account.uncounted[0].callers:
        return None
    inside = account.main.inside()
    if inside is None or inside.stacks < LEAST_STACKS:
        return None
    at_s = index.snapshot.at_s
    for_s = at_s - max(inside.since_s, last_transfer_s(index, process))
    shares = account.main.last_minute().shares()
    # On a loaded machine it waits for a free core as well.
    busy = sum(share for doing, share in shares if doing.kind == "computing" or doing == NO_CORE)
    is_recent = at_s - inside.taken_s < at_least_s / 2
    is_own = inside.installed <= LIBRARY_SHARE * inside.stacks
    if for_s < at_least_s or not (is_recent and is_own):
        return None
    if busy < COMPUTES:
        return None
    words = inside_words(inside)
    return Computation(process, words, for_s, inside.stacks) if words else None


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
