"""Stacks merged over workers or ranks: groups with equal meaning, and outliers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.describe.processes import ROLE_PLURALS, names_text
from mpwatch.diagnose.analysis.stack_patterns import (
    Shape,
    collective_of,
    main_thread,
    shape_of,
    user_frame,
)
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process

OUTLIER_SHARE = 0.25
"""A group smaller than this part of all processes is an outlier."""
MERGED_FROM = 3
"""Main threads of fewer processes than this are not worth merging."""

_SHAPE_WORDS: Mapping[Shape, str] = {
    "worker-idle": "wait for work in Queue.get",
    "worker-collating": "collate",
    "waits-for-batch": "wait for a batch",
    "starts-workers": "start workers",
    "shuts-workers-down": "shut workers down",
    "worker-leaving": "are exiting",
    "lock-between-processes": "wait for a lock between processes",
    "event-between-processes": "wait for an event between processes",
    "joins-process": "wait for a process to exit",
    "joins-thread": "wait for a thread to finish",
    "joins-queue": "wait for a queue's feeder thread to finish",
    "pool-idle": "wait for a task of a pool",
    "pool-result": "wait for the result of a Pool",
    "queue-get": "wait in Queue.get",
    "imports-main": "import the main module",
    "debugger": "are stopped in a debugger",
}


class StackGroup(Struct, frozen=True):
    """Processes whose main threads do the same thing."""

    processes: tuple[ProcessId, ...]
    names: str
    """Their numbers with runs joined: `0-2, 4-63`; labels where they have none."""
    words: str
    """What they do: `wait for work in Queue.get`, `in all_reduce`, `data.py:31 decode`."""
    frames: tuple[Frame, ...]
    """One stack of the group, innermost first, without frames that a fork copied."""
    is_outlier: bool
    noun: str = ""
    """What the numbers are of: `worker` or `rank`; empty where there are labels."""

    @property
    def called(self) -> str:
        """The names of the processes: `workers 0-2`, `rank 3`, or labels."""
        if not self.noun:
            return self.names
        return f"{self.noun}{'s' if len(self.processes) > 1 else ''} {self.names}"

    @property
    def does(self) -> str:
        """`words` behind the names: `waits for a batch` of one process."""
        verb, blank, rest = self.words.partition(" ")
        is_one = len(self.processes) == 1
        return f"{_OF_ONE.get(verb, verb) if is_one else verb}{blank}{rest}"


class MergedStacks(Struct, frozen=True):
    """All groups, the largest first."""

    total: int
    groups: tuple[StackGroup, ...]

    @property
    def sentence(self) -> str:
        """All groups in one line: `62 of 64 wait in Queue.get; worker 3 in data.py:31 decode`."""
        return "; ".join(
            f"{group.called} {group.does}"
            if group.is_outlier or len(group.processes) == 1 < self.total
            else f"{len(group.processes)} of {self.total} {group.words}"
            for group in self.groups
        )


_OF_ONE: Mapping[str, str] = {
    "wait": "waits",
    "collate": "collates",
    "start": "starts",
    "shut": "shuts",
    "are": "is",
    "import": "imports",
}
"""The verbs of `_SHAPE_WORDS` for one process."""


def merge(processes: Iterable[Process]) -> MergedStacks:
    """Group processes by what their main threads do.

    Processes without a stack are left out. Two stacks are the same if they mean the same: both wait
    for work, both are in one collective, or both are at the same function of the user's code.
    """
    by_words: defaultdict[str, list[Process]] = defaultdict(list)
    stacks: dict[str, tuple[Frame, ...]] = {}
    words_by_stack: dict[tuple[Frame, ...], str] = {}
    for process in processes:
        thread = main_thread(process)
        if thread is None or not thread.stack:
            continue
        own = tuple(own_frames(thread.stack))
        words = words_by_stack.get(own) or words_by_stack.setdefault(own, _words(own))
        by_words[words].append(process)
        stacks.setdefault(words, own)
    total = sum(map(len, by_words.values()))
    largest = max(map(len, by_words.values()), default=0)
    groups = [
        StackGroup(
            processes=tuple(each.process for each in group),
            names=_names(group),
            words=words,
            frames=stacks[words],
            noun=_noun(group),
            is_outlier=len(group) < largest and len(group) <= max(1, OUTLIER_SHARE * total),
        )
        for words, group in by_words.items()
    ]
    groups.sort(key=lambda group: (-len(group.processes), group.processes[0]))
    return MergedStacks(total, tuple(groups))


def merged_stacks(
    processes: Iterable[Process], least: int = MERGED_FROM
) -> Iterator[tuple[str, MergedStacks]]:
    """The main threads of the processes of each role by equal stacks, below the role's name.

    Args:
        processes: Those that live.
        least: Roles with fewer stacks are left out.
    """
    by_role: defaultdict[Role, list[Process]] = defaultdict(list)
    for process in processes:
        by_role[process.role].append(process)
    for role, name in ROLE_PLURALS.items():
        merged = merge(by_role[role])
        if merged.total >= least:
            yield name, merged


def _words(frames: Sequence[Frame]) -> str:
    """The meaning of a stack in words, equal for equal meanings."""
    collective = collective_of(frames)
    if collective is not None:
        return f"in {collective}"
    shape = shape_of(tuple(frames))
    if shape in _SHAPE_WORDS:
        return _SHAPE_WORDS[shape]
    user = user_frame(frames)
    if user is None:
        return f"in {frames[0].function} ({frames[0].file.rpartition('/')[2]})"
    into = f" -> {frames[0].function}" if is_library(frames[0]) else ""
    return f"in {frame_words(user)}{into}"


def _noun(processes: Sequence[Process]) -> str:
    """The noun for the numbers that `_names` returns."""
    if not _names(processes)[:1].isdigit():
        return ""
    return "rank" if processes[0].role == "rank" else "worker"


def _names(processes: Sequence[Process]) -> str:
    """Numbers of workers or ranks with runs joined, or labels."""
    numbers = [_number(process) for process in processes]
    known = sorted(number for number in numbers if number is not None)
    if len(known) < len(numbers) or len(set(known)) < len(known):
        return names_text(process.label for process in processes)
    return ranges(known)


def _number(process: Process) -> int | None:
    """The number of a rank or DataLoader worker."""
    if process.role == "rank":
        return process.sample.rank
    return process.sample.worker_id if process.role == "loader-worker" else None


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers with runs joined and `and` before the last: `0-2, 7 and 9`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [
        part
        for run in runs
        for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))
    ]
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
