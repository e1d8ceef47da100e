"""What each round of a process makes that stays until a call which no round reaches.

A thread, a process, a descriptor that is a plain number, a figure of pyplot, a client of a library:
none of these ends or is freed when the program drops the object that has it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from mpwatch.describe.findings import capital
from mpwatch.diagnose.analysis.growth.growing import Explanation, Growing
from mpwatch.diagnose.analysis.growth.newest import (
    MOST,
    has_zombies,
    newest_links,
    newest_stacks,
)
from mpwatch.diagnose.analysis.growth.registrations import repeated_in
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words
from mpwatch.model.samples import FdKind
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

_OVER = "over"
_EVENTS = "events.out.tfevents."
"""Begins the names of the files of a SummaryWriter."""
_WRITES_EVENTS = "event_file_writer.py"
"""Has the function that the thread of a SummaryWriter runs, in tensorboard and tensorboardX."""
_NUMBERS: Mapping[str, Sequence[FdKind]] = {
    "any": ("file", "pipe", "socket", "shm", "device", "event"),
    "event": ("event",),
    "file": ("file", "shm", "device"),
    "pipe": ("pipe",),
    "shm": ("shm", "file"),
}


class _Left(NamedTuple):
    """A statement that makes what stays, with the words of its `Mark.about`."""

    mark: Mark
    kind: str
    made: str
    """The class or function."""
    undone_by: str
    """The method or function that would release it; empty if there is none."""
    taken_at: str
    """Where its class takes it; empty for a library."""
    way: str
    """As `MarkKind` says of "never-closed"."""
    where: str
    """`each round of the loop at main.py:51-57 work`."""

    @property
    def call(self) -> str:
        """What would release it: `close()`, `matplotlib.pyplot.close()`."""
        return f"{self.undone_by}()"

    @property
    def evidence(self) -> str:
        """That the loop reaches the statement, which is what was observed."""
        return f"{mark_words(self.mark)} is reached in {self.where}"

    @property
    def how(self) -> str:
        """Why it stays, as the end of a sentence."""
        if not self.undone_by:
            return f"no method of {self.made} closes it"
        condition = self.way.removeprefix(_OVER).strip()
        if condition not in ("", "none"):
            return (
                f"{self.call} is called only under `{condition.rpartition(' in line ')[0]}` in "
                + (f"line {condition.rpartition(' ')[2]}")
            )
        function = f"{self.mark.function}()"
        if self.way == _OVER:
            return (
                f"{function} gives the attribute a new one, and neither it nor what calls it in "
                f"the same round calls {self.call} of the former one"
            )
        if "." in self.undone_by:
            return f"none of the files that were read calls {self.call}"
        return f"{function} neither calls {self.call} of it nor gives it to anything that does"

    @property
    def advice(self) -> str:
        """How to release it."""
        place = mark_place(self.mark)
        if not self.undone_by:
            return (
                f"Give {self.made} a method close() that calls os.close() on it, and call that in "
                f"a `finally` clause where the use of what {place} makes ends."
            )
        if self.way.startswith(_OVER):
            return f"Call {self.call} of the former one each time, before {place} makes the next."
        if self.way != "none":
            return f"Call {self.call} on each way out of {self.mark.function}(): in `finally`."
        return f"Call {self.call} in a `finally` clause where the use of what {place} makes ends."


def _left_in(index: Index, process: Process, kinds: Collection[str]) -> _Left | None:
    """The one statement whose rounds a process is in, and that makes something of these kinds."""
    found = []
    for mark, what, where in repeated_in(index, process, "never-closed"):
        kind, made, undone_by, taken_at, way = what.split(", ", 4)
        if kind in kinds:
            found.append(_Left(mark, kind, made, undone_by, taken_at, way, where))
    return found[0] if len({(each.mark.file, each.mark.statement) for each in found}) == 1 else None


def left_threads(index: Index, found: Growing, words: Sequence[str]) -> Explanation | None:
    """Threads that objects of the program, or writers of events, have started and nothing ends.

    Args:
        index: The snapshot.
        found: The growth of threads.
        words: What is known of the newest.
    """
    left = _left_in(index, found.process, ("threads", "writers"))
    if left is None:
        return None
    stacks = newest_stacks(found.process, found.growth.gained)
    file = left.taken_at.rpartition(":")[0] if left.kind == "threads" else _WRITES_EVENTS
    there = sum(any(e.file.rpartition("/")[2] == file for e in stack) for stack in stacks)
    if stacks and there < MOST * len(stacks):
        return None
    likely = "" if stacks else "Most likely "
    if left.kind == "writers":
        return _of_writers(left, "threads", words, likely)
    cause = (
        f"{mark_words(left.mark)} makes a {left.made} in {left.where}, and each starts a thread "
        f"(at {left.taken_at}) that runs a method of the object until it is told to end: "
        f"{left.how}."
    )
    return Explanation(
        "threads",
        (*words, left.evidence),
        f"{likely}{cause}" if likely else capital(cause),
        f"{left.advice} To drop the object does not end the thread, which refers to it, and "
        "gc.collect() does not either.",
        is_shown=not likely,
    )


def left_children(index: Index, found: Growing, words: Sequence[str]) -> Explanation | None:
    """Processes that objects of the program have started and nothing ends."""
    left = _left_in(index, found.process, ("processes",))
    if left is None or has_zombies(index, found.process):
        return None
    return Explanation(
        "child processes",
        (*words, left.evidence),
        f"Most likely {mark_words(left.mark)} makes a {left.made} in {left.where}, and each starts "
        f"a process (at {left.taken_at}), which goes on when the object is dropped: {left.how}.",
        f"{left.advice} gc.collect() ends none of them.",
        is_shown=False,
    )


def left_descriptors(
    index: Index, found: Growing, kind: FdKind | None, noun: str, words: Sequence[str]
) -> Explanation | None:
    """Descriptors that objects of the program keep as numbers, or the files of writers of events.

    Args:
        index: The snapshot.
        found: The growth of descriptors.
        kind: What most of the newest descriptors are.
        noun: The same in words.
        words: What is known of them.
    """
    kinds = {name for name, of in _NUMBERS.items() if kind in of}
    links = newest_links(found.process, found.growth.gained)
    events = sum(each.target.rpartition("/")[2].startswith(_EVENTS) for each in links)
    if kind == "file" and events >= MOST * len(links):
        left = _left_in(index, found.process, ("writers",))
        return _of_writers(left, noun, words, "") if left is not None else None
    left = _left_in(index, found.process, kinds)
    if left is None:
        return None
    names, verb = all_called(found.processes), "have" if len(found.processes) > 1 else "has"
    return Explanation(
        noun,
        (*words, left.evidence),
        f"Most likely {mark_words(left.mark)} makes a {left.made} in {left.where}, and each opens "
        f"one (at {left.taken_at}) as a plain integer, which is not closed when the object is "
        f"dropped: {left.how}.",
        f"{left.advice} A higher limit (ulimit -n) or gc.collect() does not help.",
        f"{names} {verb} ever more {noun}, most likely of each {left.made} that is made at "
        f"{mark_place(left.mark)}",
        is_shown=False,
    )


def left_memory(index: Index, process: Process, seen: Sequence[str]) -> Explanation | None:
    """Figures of pyplot, or clients of a library, that nothing in the program gives back."""
    left = _left_in(index, process, ("figures", "memory"))
    if left is None:
        return None
    if left.kind == "figures":
        return Explanation(
            "private memory",
            (*seen, left.evidence, f"none of the files that were read calls {left.call}"),
            f"Most likely figures stay: {mark_words(left.mark)} makes one in {left.where}, and "
            "matplotlib.pyplot keeps each figure by its number, with its axes, data and canvas, "
            f"until {left.call} is called with it. No file that was read calls that, and a "
            "variable that is deleted or assigned anew frees none of them.",
            "Call matplotlib.pyplot.close(fig) after savefig() (in a `finally` clause); or make it "
            "without pyplot: matplotlib.figure.Figure(), which is freed when it is dropped. "
            "gc.collect(), del, or a smaller figure does not help.",
            is_shown=False,
        )
    at = f" (at {left.taken_at})" if left.taken_at else ""
    return Explanation(
        "private memory",
        (*seen, left.evidence),
        f"Most likely what {left.made} takes stays: {mark_words(left.mark)} makes one in "
        f"{left.where}{at}, of which the program has only a number, so that its library keeps it: "
        f"{left.how}.",
        f"{left.advice} gc.collect() or del does not help.",
        is_shown=False,
    )


def _of_writers(left: _Left, noun: str, words: Sequence[str], likely: str) -> Explanation:
    """Writers of events, each with a thread and a file."""
    at = f" (at {left.taken_at})" if left.taken_at else ""
    cause = (
        f"{mark_words(left.mark)} makes a SummaryWriter in {left.where}{at}. Each has a thread, "
        f"which waits for events, and keeps its file open until close() is called: {left.how}."
    )
    return Explanation(
        noun,
        (*words, left.evidence),
        f"{likely}{cause}" if likely else capital(cause),
        f"{left.advice} Or make one writer for the whole run. To drop a writer ends neither its "
        "thread nor its file; nor does gc.collect().",
        is_shown=not likely,
    )
