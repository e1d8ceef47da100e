"""Stacks of many threads as text, equal stacks once.

If 62 of 64 workers have one stack, that is one entry, and the two others are another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from mpwatch.describe.frames import own_frames, place_words
from mpwatch.describe.processes import ROLE_PLURALS, full_name, state_word
from mpwatch.diagnose.analysis.stack_merge import MergedStacks, merge
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.units import seconds_text
from mpwatch.report.table import TextStyle, cell_width, cut, cut_start

THREADS_SHOWN = 6
MERGED_FROM = 3
"""Main threads of fewer processes than this are not worth merging."""


@dataclass(frozen=True, slots=True)
class SameStack:
    """Threads of one or more processes with equal stacks."""

    frames: tuple[Frame, ...]
    """Innermost first, without the frames that a fork copied from the parent."""
    threads: tuple[tuple[Process, Thread], ...]


def equal_stacks(snapshot: Snapshot) -> tuple[SameStack, ...]:
    """Threads of all living processes by equal stacks: main threads first, then the most common."""
    groups: dict[tuple[tuple[str, str, int], ...], list[tuple[Process, Thread]]]
    groups = defaultdict(list)
    for process in snapshot.living():
        for thread in process.threads:
            if thread.stack:
                key = tuple(frame[:3] for frame in own_frames(thread.stack))
                groups[key].append((process, thread))
    same = [SameStack(tuple(own_frames(t[0][1].stack)), tuple(t)) for t in groups.values()]
    return tuple(sorted(same, key=_rank))


def stack_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """Every distinct stack once, below the threads that have it."""
    lines: list[str] = []
    for same in equal_stacks(snapshot):
        lines += style.wrap(_threads(same), "", "    ")
        for frame in same.frames:
            lines += frame_lines(frame, style)
        lines.append("")
    return lines[:-1]


def _rank(same: SameStack) -> tuple[bool, int]:
    """Main threads (tid equals pid) first, then the most common stacks."""
    has_main = any(thread.tid == process.pid for process, thread in same.threads)
    return (not has_main, -len(same.threads))


def _threads(same: SameStack) -> str:
    """`worker 0 (41826) MainThread, ...`; of a single thread also its state and its source."""
    shown = [
        full_name(process) + (f" {thread.name}" if thread.name else "")
        for process, thread in same.threads[:THREADS_SHOWN]
    ]
    more = len(same.threads) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more else "")
    if len(same.threads) > 1:
        return f"{len(same.threads)} threads: {names}"
    thread = same.threads[0][1]
    facts = [state_word(thread.state)]
    if thread.wchan:
        facts.append(thread.wchan)
    if thread.still_s:
        facts.append(f"no cpu used for {seconds_text(thread.still_s)}")
    if thread.stack_source:
        facts.append(f"by {thread.stack_source}")
    return f"{names}  ({', '.join(facts)})"


def frame_lines(frame: Frame, style: TextStyle) -> list[str]:
    """`  function        file:line`, and its local variables; a long path is cut at its start."""
    function = cut(frame.function, 32)
    left = f"    {function}{' ' * max(2, 34 - cell_width(function))}"
    place = place_words(frame.file, frame.line)
    first = left + cut_start(place, max(8, style.width - cell_width(left)))
    return [first, *(cut(f"      {name} = {value}", style.width) for name, value in frame.locals)]


def merged_stacks(snapshot: Snapshot) -> Iterator[tuple[str, MergedStacks]]:
    """The main threads of the processes of each role by equal stacks, below the role's name."""
    for role, name in ROLE_PLURALS.items():
        merged = merge(process for process in snapshot.living() if process.role == role)
        if merged.total >= MERGED_FROM:
            yield name, merged


def merged_stack_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """A sentence for each role: `workers: 62 of 64 wait for work in Queue.get; 3 and 17 in ...`."""
    lines: list[str] = []
    for name, merged in merged_stacks(snapshot):
        lines += style.wrap(f"{name}: {merged.sentence}", "  ", "    ")
    return lines
