"""Stacks of many threads as text, the same stack told once.

Sixty-four workers that stand in the same line are one fact, and the two that do not are another.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mpwatch.describe.states import STATE_WORDS
from mpwatch.diagnose.analysis.stack_merge import MergedStacks, merge
from mpwatch.model.ids import Role
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.units import seconds_text
from mpwatch.report.table import Paper, cell_width, cut, cut_start

MEMBERS_SHOWN = 6
BOOTSTRAP = "_bootstrap"
"""`BaseProcess._bootstrap`: what lies outside it in a forked child is the parent's own stack."""

_LIBRARIES = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/")


@dataclass(frozen=True, slots=True)
class SameStack:
    """Threads of one or more processes with one and the same stack."""

    frames: tuple[Frame, ...]
    """Innermost first, without the frames a fork copied from the parent."""
    members: tuple[tuple[Process, Thread], ...]


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames a process entered itself.

    A forked child keeps its parent's frames below `BaseProcess._bootstrap` (multiprocessing/
    process.py, CPython 3.10 to 3.14), so every fork worker looks as if it were starting workers.
    A thread's own `_bootstrap` (threading.py) is no such border.
    """
    for index, frame in enumerate(frames):
        if frame.function.endswith(BOOTSTRAP) and frame.file.endswith("process.py"):
            return tuple(frames[: index + 1])
    return tuple(frames)


def merged(snapshot: Snapshot) -> tuple[SameStack, ...]:
    """Equal stacks joined over all living processes: main threads first, then the most common."""
    groups: dict[tuple[tuple[str, str, int], ...], list[tuple[Process, Thread]]]
    groups = defaultdict(list)
    for process in snapshot.living():
        for thread in process.threads:
            if thread.stack:
                frames = own_frames(thread.stack)
                groups[tuple(frame[:3] for frame in frames)].append((process, thread))
    same = [SameStack(own_frames(m[0][1].stack), tuple(m)) for m in groups.values()]
    return tuple(sorted(same, key=_rank))


def short_path(file: str) -> str:
    """`torch/utils/data/dataloader.py` for a library's file, others as they are."""
    return _LIBRARIES.sub("", file)


def stack_lines(snapshot: Snapshot, paper: Paper) -> list[str]:
    """Every distinct stack once, under the threads that stand in it."""
    lines: list[str] = []
    for same in merged(snapshot):
        lines += paper.wrap(_members(same), "", "    ")
        lines += [_frame(frame, paper) for frame in same.frames]
        for frame in same.frames:
            lines += [cut(f"      {name} = {value}", paper.width) for name, value in frame.locals]
        lines.append("")
    return lines[:-1]


def _rank(same: SameStack) -> tuple[bool, int]:
    """Helper threads last: what a job does stands in its main threads (tid equals pid)."""
    has_main = any(thread.tid == process.pid for process, thread in same.members)
    return (not has_main, -len(same.members))


def _members(same: SameStack) -> str:
    """`worker 0 41826 MainThread, ...`, with state and source if there is only one."""
    shown = [
        f"{process.label} {process.pid}" + (f" {thread.name}" if thread.name else "")
        for process, thread in same.members[:MEMBERS_SHOWN]
    ]
    more = len(same.members) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more else "")
    if len(same.members) > 1:
        return f"{len(same.members)} threads: {names}"
    thread = same.members[0][1]
    facts = [STATE_WORDS.get(thread.state, thread.state)]
    if thread.wchan:
        facts.append(thread.wchan)
    if thread.still_s:
        facts.append(f"still for {seconds_text(thread.still_s)}")
    if thread.stack_source:
        facts.append(f"by {thread.stack_source}")
    return f"{names}  ({', '.join(facts)})"


def _frame(frame: Frame, paper: Paper) -> str:
    """`  function        file:line`, the end of a long path kept."""
    function = cut(frame.function, 32)
    left = f"    {function}{' ' * max(2, 34 - cell_width(function))}"
    line = f":{frame.line}" if frame.line else ""
    return (
        left
        + cut_start(short_path(frame.file), max(8, paper.width - cell_width(left) - len(line)))
        + line
    )


CROWD = 3
"""Two processes are told one by one."""
_CALLED: dict[Role, str] = {
    "loader-worker": "workers",
    "rank": "ranks",
    "pool-worker": "pool workers",
    "spawned": "spawned",
}


def crowds(snapshot: Snapshot) -> Iterator[tuple[str, MergedStacks]]:
    """The stacks of each role that many have, merged, under what such processes are called."""
    for role, called in _CALLED.items():
        merged = merge(process for process in snapshot.living() if process.role == role)
        if merged.total >= CROWD:
            yield called, merged


def crowd_lines(snapshot: Snapshot, paper: Paper) -> list[str]:
    """One sentence a role: `workers: 62 of 64 wait for work in Queue.get; 3 and 17 in ...`."""
    lines: list[str] = []
    for called, merged in crowds(snapshot):
        lines += paper.wrap(f"{called}: {merged.sentence}", "  ", "    ")
    return lines
