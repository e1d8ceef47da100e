"""A loop with a condition that a process has not left for long while another process waits for it.

Stacks in which the same calls are found, one after the other, may be of one call or of many: a
function that is called again and again from one line looks alike. It is one call where nothing
around it repeats it, or where what counts the rounds around it stays the same.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.source.loops import RECENT_S, SPIN_STACKS
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.values import readings_of, value_words
from mpwatch.diagnose.analysis.waits.blockages import usual_pause_s
from mpwatch.model.account import Callers
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, NameValue
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Decider, EndlessLoop, SourceLine, Statement
from mpwatch.model.units import seconds_text

LOOP_S = 15.0
"""So long inside of one loop while another process waits: shorter is an item like others."""
SAME_S, SAME_READINGS = 8.0, 2
"""Counters have to stay the same for so long, in so many readings."""
RISING_READINGS = 4
"""Lengths that rise from one reading to the next so often are of one and the same container."""
RISES = 1.5
FALLING_READINGS = 3
VALUES_SHOWN = 3
REPEATS_NOT = frozenset(
    ("_call_impl", "_fn", "_wrapped_call_impl", "decorate_context", "inner", "wrapped", "wrapper")
)
"""Functions of libraries that call what they are given once, by their names."""
_IN_EXPRESSION = re.compile(r"[\[({].*\bfor\b .*\bin\b|\b(?:filter|map|max|min|sorted)\(")
"""A comprehension, or a function that calls what it is given for each element."""


class UnfinishedLoop(Struct, frozen=True):
    """A `while` loop with a condition, inside of which all stacks of a process lately were."""

    process: Process
    frame: Frame
    """Where its function is now."""
    loop: EndlessLoop
    since_s: float
    """When the first of those stacks was taken, monotonic."""
    shows_one: str
    """Why these stacks are of one call, as a sentence; empty where that is not known."""
    values: str
    """What decides whether it ends, `hyps is a list of 900 (120 before)`; empty where not known."""

    @property
    def place(self) -> str:
        """``` `while pending:` (decoder.py:42 advance) ```."""
        header = self.loop.header
        file = self.frame.file.rpartition("/")[2]
        return f"`{header.text}` ({file}:{header.line} {self.frame.function})"

    @property
    def ends(self) -> str:
        """By what it ends, as a clause: `it ends when that is false, or by `if ...: break` ...`."""
        ends = [f"`{each.text}` (line {each.line})" for each in self.loop.ends[:2]]
        other = (
            "" if len(self.loop.ends) <= 2 and not self.loop.is_left_otherwise else ", or others"
        )
        by = f", or by {' or '.join(ends)}{other}" if ends else ""
        return f"it ends when that condition is not true any more{by}"


def unfinished_loop(index: Index, process: Process, waiter: Process) -> UnfinishedLoop | None:
    """The loop that a process has not left for longer than the other one is used to wait.

    `None` where it goes from call to call, comes closer to the end of the loop, or takes part in
    the same loop as the one that waits.
    """
    thread, waits = main_thread(process), main_thread(waiter)
    if thread is None or waits is None:
        return None
    stack, beside = _outermost_first(thread.stack), _outermost_first(waits.stack)
    least_s = max(LOOP_S, usual_pause_s(index, waiter))
    for inside in _inside(index, process):
        if index.snapshot.at_s - inside.since_s >= least_s:
            found = _loop_inside(index, process, inside, stack, beside)
            if found is not None:
                return found
    return None


def _loop_inside(
    index: Index,
    process: Process,
    inside: Callers,
    stack: Sequence[Frame],
    beside: Sequence[Frame],
) -> UnfinishedLoop | None:
    """The loop in which the calls of a process agree in a stretch of time.

    Args:
        index: The snapshot.
        process: It.
        inside: What its stacks have in common.
        stack: The last of them, outermost first.
        beside: That of the process that waits.
    """
    number = _innermost_in_loop(index, stack[: len(inside.frames)], inside.frames)
    if number is None:
        return None
    frame = stack[number]
    line = source_of(index, frame)
    if line is None or line.until is None or _is_in(frame, beside):
        return None
    decider = _decider_of(line, line.until.header)
    seen = _Seen(index, process.process, inside.since_s)
    if decider is not None and seen.comes_to_an_end(frame, decider):
        return None
    around = list(_around(index, stack[:number], beside))
    if any(seen.has_moved(each) for each in around):
        return None
    return UnfinishedLoop(
        process,
        frame,
        line.until,
        inside.since_s,
        _shows_one(seen, around) or seen.rises(frame, decider),
        seen.words(frame, decider),
    )


def _inside(index: Index, process: Process) -> list[Callers]:
    """The calls that all stacks of a process lately had in common, where these are many and new.

    Those of the last stretch of time alone as well: it may have done something else before.
    """
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not account.uncounted:
        return []
    stretches = (account.main.inside(), *account.uncounted[0].callers[-1:])
    return [
        each
        for each in stretches
        if each is not None
        and index.snapshot.at_s - each.taken_s < RECENT_S
        and each.stacks >= SPIN_STACKS
    ]


def _outermost_first(frames: Sequence[Frame]) -> list[Frame]:
    return list(own_frames(frames))[::-1]


def _is_in(frame: Frame, stack: Sequence[Frame]) -> bool:
    return any((each.file, each.function) == (frame.file, frame.function) for each in stack)


def _innermost_in_loop(index: Index, stack: Sequence[Frame], common: Sequence[Frame]) -> int | None:
    """The innermost of the common calls that is in a loop of the program, by its place."""
    for number in reversed(range(len(stack))):
        frame, same = stack[number], common[number]
        if (frame.file, frame.function) != (same.file, same.function) or is_library(frame):
            continue
        line = source_of(index, frame)
        if line is not None and (line.until is not None or _loops_around(line)):
            return number
    return None


def _loops_around(line: SourceLine) -> list[Statement]:
    """The headers of the loops around a line, and of one that begins there."""
    return [each for each in (*line.within, line.statement) if _is_loop(each.text)]


def _is_loop(text: str) -> bool:
    return text.startswith(("for ", "async for ", "while "))


def _decider_of(line: SourceLine, header: Statement) -> Decider | None:
    return next((each for each in line.deciders if each.statement.line == header.line), None)


class _Around(Struct, frozen=True):
    """What may repeat a call."""

    frame: Frame
    counters: tuple[str, ...]
    """What counts its rounds; empty where that is not known."""


def _around(index: Index, callers: Sequence[Frame], beside: Sequence[Frame]) -> Iterator[_Around]:
    """The loops around the calls that lead to a function, but for those that the other one is in.

    Args:
        index: The snapshot.
        callers: The calls of the process, outermost first.
        beside: Those of the one that waits: what both are in cannot go on for one of them alone.
    """
    for number, frame in enumerate(callers):
        other = beside[number] if number < len(beside) else None
        is_shared = other is not None and (
            (other.file, other.function) == (frame.file, frame.function)
        )
        if not is_shared:
            beside = beside[:number]
        if is_library(frame):
            if not is_shared and frame.function not in REPEATS_NOT:
                yield _Around(frame, ())
            continue
        line = source_of(index, frame)
        there = source_of(index, other) if is_shared and other is not None else None
        both = () if there is None else _loops_around(there)
        if is_shared and other is not None and other.line == frame.line:
            continue
        if line is None or _IN_EXPRESSION.search(line.statement.text):
            yield _Around(frame, ())
        for header in _loops_around(line) if line is not None else ():
            if header not in both:
                decider = _decider_of(line, header) if line is not None else None
                yield _Around(frame, decider.counts if decider is not None else ())


class _Seen(Struct, frozen=True):
    """What was read of the values of a process while it was inside of a loop."""

    index: Index
    process: ProcessId
    since_s: float

    def of(self, frame: Frame, name: str) -> Sequence[tuple[float, NameValue]]:
        """The readings of a name, oldest first."""
        found = readings_of(self.index, self.process, frame, name)
        return [each for each in found if each[0] >= self.since_s]

    def has_moved(self, around: _Around) -> bool:
        """Whether a counter of a loop has changed."""
        return any(
            len({value.number for _, value in self.of(around.frame, name)}) > 1
            for name in around.counters
        )

    def is_same(self, around: _Around) -> bool:
        """Whether a counter of a loop was read for long enough, and has not changed."""
        for name in around.counters:
            points = self.of(around.frame, name)
            numbers = {value.number for _, value in points}
            is_long = len(points) >= SAME_READINGS and points[-1][0] - points[0][0] >= SAME_S
            if is_long and len(numbers) == 1 and None not in numbers:
                return True
        return False

    def comes_to_an_end(self, frame: Frame, loop: Decider) -> bool:
        """Whether what counts its rounds moves, or what it works off becomes less."""
        for name in loop.names:
            points = [value for _, value in self.of(frame, name)]
            numbers = [each.number for each in points if type(each.number) in (int, float)]
            if name in loop.counts and len(set(numbers)) > 1:
                return True
            lengths = [each.length for each in points if each.length is not None]
            is_less = len(lengths) >= FALLING_READINGS and lengths[-1] < lengths[0]
            if is_less and lengths == sorted(lengths, reverse=True):
                return True
        return False

    def rises(self, frame: Frame, loop: Decider | None) -> str:
        """That something in the condition is one container that only grows; empty if not known."""
        for name in loop.names if loop is not None else ():
            lengths = [v.length for _, v in self.of(frame, name) if v.length is not None]
            is_rising = all(a < b for a, b in itertools.pairwise(lengths))
            if len(lengths) >= RISING_READINGS and is_rising and lengths[-1] > RISES * lengths[0]:
                return (
                    f"That is one call: {name} has become longer at each of {len(lengths)} "
                    f"readings, from {lengths[0]:,} to {lengths[-1]:,}."
                )
        return ""

    def words(self, frame: Frame, loop: Decider | None) -> str:
        """The values in the condition of a loop, and what they were before."""
        found = []
        for name in loop.names[:VALUES_SHOWN] if loop is not None else ():
            points = self.of(frame, name)
            if not points:
                continue
            (first_s, first), (last_s, last) = points[0], points[-1]
            was = (
                f" ({value_words(first)} {seconds_text(last_s - first_s)} before)"
                if (first.number, first.length) != (last.number, last.length)
                else ""
            )
            found.append(f"{name} is {value_words(last)}{was}")
        return ", ".join(found)


def _shows_one(seen: _Seen, around: Sequence[_Around]) -> str:
    """Why stacks are of one call, as a sentence; empty where that is not known."""
    if not around:
        return "Nothing around that call repeats it before the others are met."
    if not all(map(seen.is_same, around)):
        return ""
    counters = [
        f"{name} is {value_words(points[-1][1])} ({frame_words(each.frame)})"
        for each in around
        for name in each.counters[:1]
        if (points := seen.of(each.frame, name))
    ]
    return f"That is one call: {' and '.join(dict.fromkeys(counters))} at each reading."
