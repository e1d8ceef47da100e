"""What rules read in the account of time: shares of processes, and the lines at which they work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from mpwatch.describe.account import sentence
from mpwatch.describe.processes import unique_names
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.model.account import (
    BUCKET_S,
    IMPORTS,
    NO_CORE,
    RUNNING_KINDS,
    Activity,
    Share,
    Target,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process

READINGS = 6
OBSERVED_S = 8.0
"""With less observed time, or fewer readings, a share means nothing."""
MOST_SHARE = 0.98
KNOWN = 0.2
"""Lines are named where they are known of this part of the work."""


def shares(index: Index, process: Process) -> Sequence[Share]:
    """The shares of a process' main thread in the last minute; empty where too little was seen."""
    return _shares(index, process.process)


@derived
def _shares(index: Index, identity: ProcessId) -> Sequence[Share]:
    account = index.snapshot.account.processes.get(identity)
    if account is None or not account.uncounted:
        return ()
    tally = account.main.last_minute()
    if tally.readings < READINGS or tally.observed_s < OBSERVED_S:
        return ()
    return tally.shares()


def doing_words(index: Index, process: Process) -> str | None:
    """What the main thread did, `55 % waiting for a free core, 43 % computing at data.py:25 f`."""
    found = shares(index, process)
    return sentence(found, _names(index)) if found else None


@derived
def _names(index: Index) -> dict[ProcessId, str]:
    return unique_names(index.snapshot)


def core_share(index: Index, process: Process) -> float:
    """The share of the time in which the main thread could run and got no core, 0 to 1."""
    return sum(each.share for each in shares(index, process) if each.activity == NO_CORE)


def working_share(index: Index, process: Process) -> float:
    """The share of the time in which it computed, could have computed, slept, or used a file."""
    return sum(each.share for each in shares(index, process) if is_work(each.activity))


def is_work(activity: Activity) -> bool:
    """Whether an activity is the program's own work, and no wait for another process."""
    return (
        activity.kind in RUNNING_KINDS
        or activity.kind == "sleeping"
        or activity.target in ("core", "file", "page-faults")
    )


def waiting_share(index: Index, process: Process) -> float:
    """The share of the time in which its main thread waited for what other processes have to send.

    Waits for an item, for data or for an event, and not for room or a reader: a process that waits
    for room is ahead of the others. A semaphore of which no stack shows the purpose
    counts where stacks of the same process show a queue: it is the lock of the queue's readers.
    """
    found = shares(index, process)
    uses_queue = any(each.activity.what == "an item of a queue" for each in found)
    return sum(
        each.share
        for each in found
        if each.activity.kind == "waiting"
        and (
            (each.activity.target in _OF_OTHERS and not each.activity.what.startswith(_AHEAD))
            or (uses_queue and each.activity.target == "lock" and not each.activity.place)
        )
    )


_AHEAD = ("room in", "the other end of")
_OF_OTHERS: frozenset[Target] = frozenset(("queue", "pipe", "socket", "event"))


def times_faster(share: float) -> str:
    """How much faster a loop is without a share of its time: `2.5 times`; never over 50 times.

    A share is known to some percentage points, so a larger number would mean nothing.
    """
    return "50 times" if share >= MOST_SHARE else f"{1 / (1 - share):.1f} times"


class Place(NamedTuple):
    """The function of the program in which processes work, with its most frequent line."""

    words: str
    """`data.py:25 _load_set`."""
    part: float
    """Of the work whose line is known, 0 to 1."""


def work_place(index: Index, processes: Iterable[Process]) -> Place | None:
    """Where some processes did most of their work; `None` where lines are hardly known.

    Time in which they waited for a free core has no line.
    """
    lines: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    work = 0.0
    for process in processes:
        for each in shares(index, process):
            if not is_work(each.activity) or each.activity == NO_CORE:
                continue
            work += each.share
            if each.activity.place:
                where, _, function = each.activity.place.partition(" ")
                file, _, line = where.rpartition(":")
                lines[file, function, line] += each.share
    known = sum(lines.values())
    if not work or known < KNOWN * work:
        return None
    functions: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (file, function, _), share in lines.items():
        functions[file, function] += share
    (file, function), most = max(functions.items(), key=itemgetter(1))
    in_it = ((share, line) for (*of, line), share in lines.items() if of == [file, function])
    _, line = max(in_it)
    return Place(f"{file}:{line} {function}", most / known)


def imported_until_s(index: Index, process: Process) -> float | None:
    """When the main thread was last found in an import, monotonic; `None` if it never was.

    It is known to `BUCKET_S`. Memory, mappings and descriptors rise steadily until then.
    """
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not account.uncounted:
        return None
    if account.uncounted[0].now.what == IMPORTS:
        return account.at_s
    for bucket in reversed(account.uncounted[0].buckets):
        if any(activity.what == IMPORTS for activity in bucket.tally.seen):
            return (bucket.number + 1) * BUCKET_S
    return None
