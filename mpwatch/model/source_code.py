"""Source code of the lines at which a job is: what rules and evidence may say about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Statement(NamedTuple):
    """One statement, or the header of a compound one, in one clean line."""

    line: int
    text: str


class EndlessLoop(NamedTuple):
    """A loop without a condition (`while True`), and what it takes for it to end or to give."""

    header: Statement
    ends: tuple[Statement, ...] = ()
    """`if` statements in it whose body leaves it, `if keep.any(): break`."""
    is_left_otherwise: bool = False
    """Whether it may be left by another statement, such as a `return` in an `except` block."""
    gives: Statement | None = None
    """Its first `yield`."""
    given_in: Statement | None = None
    """The header of the innermost statement of the loop around that `yield`."""
    exchanges: bool = False
    """Whether it takes, sends or waits for something itself, or makes a step of training."""


class Skip(NamedTuple):
    """A way through a function that takes something and does not give it back."""

    taken: Statement
    """`slot = self.free.get()`; for an error the call or `if` that takes a lock."""
    leaves: Statement
    """`continue`, `return`, `break`, or the header of an `except` block that goes on; for an error
    the statement that may raise it."""
    under: Statement | None
    """The header of the statement around `leaves`."""
    back: Statement
    """The later statement that gives it back."""
    by_error: bool = False
    """Whether only an exception skips `back`."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The statement at one line of the program, and what decides whether it is reached."""

    file: str
    line: int
    function: str
    """As stacks name it; the line was checked to belong to a function of that name."""
    statement: Statement
    within: tuple[Statement, ...] = ()
    """Headers of the compound statements of the function around it, outermost first."""
    after: tuple[Statement, ...] = ()
    """`if` statements before it whose body leaves the function or the loop, in order."""
    ends: tuple[Statement, ...] = ()
    """`if` statements elsewhere in the innermost loop around it whose body leaves that loop."""
    endless: EndlessLoop | None = None
    """The innermost loop without a condition around it."""
    skips: tuple[Skip, ...] = ()
    """What its function takes and may not give back."""


class DroppedResult(NamedTuple):
    """A call that starts a task and drops its result: an exception in the task is never raised."""

    file: str
    line: int
    method: str
    """`submit`, `apply_async`, `map_async` or `starmap_async`."""
    statement: Statement


LINES_LIMIT = 512
"""Lines, and calls that drop a result, kept of one job: a line of a loop changes often, but a
program has few that take time."""


@dataclass(frozen=True, slots=True)
class SourceRead:
    """An input: what was read of source files. Readings add up; a line is read once."""

    at_s: float
    lines: tuple[SourceLine, ...] = ()
    dropped: tuple[DroppedResult, ...] = ()
