"""Loops of the program: what they wait for, whether a process leaves them, and what ends them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from mpwatch.describe.findings import capital
from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.lines import is_in_loop, main_line, source_of
from mpwatch.diagnose.analysis.stack_patterns import functions_of, main_thread
from mpwatch.model.account import Callers
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import EndlessLoop, SourceLine, Statement

Awaited: TypeAlias = Literal["file-removed", "file-made", "variable", "work-done"]
"""What a loop that sleeps and checks again waits for."""


LOOP_ENDS: Mapping[Awaited, str] = {
    "file-removed": "when a file is removed",
    "file-made": "when there is a file",
    "variable": "when a variable of its own process changes",
    "work-done": "when the work that it counts is done",
}


class Condition(Struct, frozen=True):
    """What a loop waits for, as its source shows."""

    kind: Awaited
    words: str
    """Which loop, after the words `the loop`: by its header, or by the clause that it sleeps in."""


_FILE = re.compile(r"\b(?:exists|lexists|is_file|isfile|is_dir|isdir)\([^()]*\)$")
_SEVERAL = re.compile(r"\b(?:and|or|if|in)\b|[<>=]")
_VARIABLE = re.compile(r"[\w.]+(?<!\.value)(?: ?(?:[<>]=?|[!=]=) ?[\w.]+)?")
"""A subscript may be of an array in shared memory, and `value` is of a multiprocessing.Value."""
_WORK = re.compile(
    r"\.(?:empty|qsize)\(|\b\w*(?:active|busy|in_?flight|outstanding|pending|remaining|running"
    r"|unfinished|workers|tasks|jobs)\w*\b",
    re.IGNORECASE,
)
"""In a condition that asks whether what was given out is done."""
_NOT_WORK = re.compile(
    r"\b\w*(?:time|deadline|stop|shutdown|exit|clock)\w*\b|\.is_set\("
    r"|^[\w.]*\b_?(?:is_)?(?:active|running)$"
)
"""In the condition of what works until it is told to end."""


def is_until_told(header: str) -> bool:
    """Whether a loop works until a time or until it is told to end, as far as words show."""
    return _NOT_WORK.search(header.partition(" ")[2].removesuffix(":")) is not None


_HANDLERS: Mapping[str, Awaited] = {
    "except FileExistsError": "file-removed",
    "except FileNotFoundError": "file-made",
}
"""A loop that sleeps in such a clause tries again: to make a file that exists, or to open one that
does not."""


def _kind_of(header: str) -> Awaited | None:
    """What a loop with one condition reads; a call of anything else may read anything."""
    found = re.fullmatch(r"while (not )?(.+?) ?:", header)
    if found is None or found[2] in ("True", "1"):
        return None
    if _FILE.search(found[2]) and not _SEVERAL.search(found[2]):
        return "file-made" if found[1] else "file-removed"
    if _WORK.search(found[2]) and not _NOT_WORK.search(found[2]):
        return "work-done"
    return "variable" if _VARIABLE.fullmatch(found[2]) and ".value " not in found[2] else None


def condition_of(index: Index, process: Process) -> Condition | None:
    """What the innermost `while` around the line of a process waits for; `None` if not known."""
    found = main_line(index, process)
    headers = list(found[1].within) if found is not None else []
    while headers and not headers[-1].text.startswith("while "):
        header = headers.pop()
        for clause, awaited in _HANDLERS.items():
            if header.text.startswith(clause) and is_in_loop(headers):
                return Condition(awaited, f"around {_quoted(header)}")
    if not headers:
        return None
    kind = _kind_of(headers[-1].text)
    return None if kind is None else Condition(kind, _quoted(headers[-1]))


def _quoted(header: Statement) -> str:
    return f"`{header.text}` in line {header.line}"


_HAS_ITEM = re.compile(r"\bnot [\w.]+\.empty\(")
_POLLS = re.compile(r"\bEmpty\b|\.(?:empty|qsize|poll)\(")


def polls_for_item(line: SourceLine) -> bool:
    """Whether a statement is reached where a check for an item of a queue has found none.

    In `except queue.Empty:`, or under a condition on `empty()`.
    """
    around = [*((each, True) for each in line.within), *((each, False) for each in line.after)]
    return any(
        _POLLS.search(each.text)
        and each.text.startswith(("except", "if ", "while ", "elif "))
        and not (is_within and _HAS_ITEM.search(each.text))
        for each, is_within in around[-2:]
    )


def endless_loop(index: Index, frames: Sequence[Frame]) -> tuple[Frame, Statement] | None:
    """The innermost loop without a condition (`while True`) that the program's own code is in."""
    for frame in own_frames(frames):
        line = source_of(index, frame) if not is_library(frame) else None
        if line is None:
            continue
        for statement in reversed(line.within):
            if re.fullmatch(r"while (?:True|1|not False) ?:", statement.text):
                return frame, statement
    return None


class Spin(Struct, frozen=True):
    """A loop without an end that a process has not left while stacks were taken."""

    process: Process
    frame: Frame
    """Where its function is now."""
    loop: EndlessLoop
    since_s: float
    """When the first of those stacks was taken, monotonic."""
    is_draw: bool = False
    """Whether each round draws something at random, and the loop ends only by a condition."""

    @property
    def place(self) -> str:
        """``` `while True:` (batches.py:33 draw) ```."""
        header, file = self.loop.header, self.frame.file.rpartition("/")[2]
        return f"`{header.text}` ({file}:{header.line} {self.frame.function})"

    @property
    def words(self) -> str:
        """`the loop `while True:` of line 33 in batches()`."""
        header = self.loop.header
        return f"the loop `{header.text}` of line {header.line} in {self.frame.function}()"


SPIN_STACKS = 6
"""Stacks at several lines of a loop, and none outside of it."""
RECENT_S = 20.0
"""The last of them has to be as new as this."""
DRAWS_S, DRAWS_STACKS = 10.0, 4
"""So many stacks at one line that draws at random, over so long a time, are of many draws."""
_DRAWS = re.compile(
    r"\b(?:random|\w*rng|\w*generator)\.\w+\("
    r"|\b(?:choices?|getrandbits|integers|multinomial|rand\w*|uniform)\("
)
"""In a statement that takes something at random, which is over in far less than a second."""


def spin(index: Index, process: Process) -> Spin | None:
    """The loop without an end in which a process computes, for as long as stacks show it.

    A loop that takes work, sends, sleeps or makes steps of training is none: others go round by
    design. Stacks at several of its lines, called from one and the same line, show that it goes
    round, and that no value of a generator was taken outside of it. So do stacks at one line that
    draws something at random, as that is over at once.
    """
    thread = main_thread(process)
    account = index.snapshot.account.processes.get(process.process)
    if thread is None or account is None or not account.uncounted:
        return None
    stretches = (account.main.inside(), *account.uncounted[0].callers[-1:])
    recent = [each for each in stretches if each and index.snapshot.at_s - each.taken_s < RECENT_S]
    inside = next((each for each in recent if _turns(each) or _draws(index, each)), None)
    for frame in own_frames(thread.stack) if inside is not None else ():
        line = source_of(index, frame) if not is_library(frame) else None
        if line is None or line.endless is None:
            continue
        last = inside.frames[-1] if inside is not None else None
        is_it = last is not None and (last.file, last.function) == (frame.file, frame.function)
        if inside is None or not is_it or line.endless.exchanges:
            return None
        loop = line.endless
        is_draw = bool(loop.ends) and not loop.is_left_otherwise and _has_draw(index, line)
        return Spin(process, frame, loop, inside.since_s, is_draw)
    return None


def kept_inside(index: Index, process: Process) -> Spin | None:
    """The loop without an end that gives values, inside of which all stacks lately were.

    Whether it goes round, or is in one long call, these do not show: `spin` does.
    """
    thread = main_thread(process)
    account = index.snapshot.account.processes.get(process.process)
    if thread is None or account is None or not account.uncounted:
        return None
    inside = account.main.inside()
    is_recent = inside is not None and index.snapshot.at_s - inside.taken_s < RECENT_S
    if inside is None or not is_recent or inside.stacks < SPIN_STACKS:
        return None
    common = functions_of(inside.frames)
    for frame in own_frames(thread.stack):
        line = source_of(index, frame) if not is_library(frame) else None
        if line is None or (frame.file, frame.function) not in common:
            continue
        loop = line.endless
        if loop is not None and loop.gives is not None and not loop.exchanges:
            return Spin(process, frame, loop, inside.since_s)
    return None


def _turns(callers: Callers) -> bool:
    """Whether stacks agree in all but the line of a function."""
    return callers.stacks >= SPIN_STACKS and bool(callers.frames) and not callers.frames[-1].line


def _draws(index: Index, callers: Callers) -> bool:
    """Whether all of some stacks are at one line of the program that draws something at random."""
    last = callers.frames[-1] if callers.frames else None
    if last is None or not last.line or callers.stacks < DRAWS_STACKS:
        return False
    line = source_of(index, last) if not is_library(last) else None
    is_long = callers.taken_s - callers.since_s >= DRAWS_S
    return is_long and line is not None and _DRAWS.search(line.statement.text) is not None


def draw_loop(index: Index, process: Process) -> tuple[Frame, EndlessLoop] | None:
    """The loop that a process is in and that draws at random until a condition is met."""
    thread = main_thread(process)
    for frame in own_frames(thread.stack) if thread is not None else ():
        line = source_of(index, frame) if not is_library(frame) else None
        loop = line.endless if line is not None else None
        if line is None or loop is None:
            continue
        is_only_end = bool(loop.ends) and not (loop.is_left_otherwise or loop.exchanges)
        return (frame, loop) if is_only_end and _has_draw(index, line) else None
    return None


def _has_draw(index: Index, line: SourceLine) -> bool:
    """Whether a line that was read of the loop around a line draws something at random."""
    return any(
        _DRAWS.search(each.statement.text) is not None
        for each in index.snapshot.source
        if (each.file, each.function, each.endless) == (line.file, line.function, line.endless)
    )


def way_out(loop: EndlessLoop) -> str:
    """By what a loop ends or gives a value; empty where that is not known.

    `it ends only by `if keep.any(): break` (line 51)`.
    """
    if loop.gives is not None:
        words = f"it gives a value only at `{loop.gives.text}` (line {loop.gives.line})"
        around = loop.given_in
        return words + (f", in `{around.text}` of line {around.line}" if around is not None else "")
    if loop.ends:
        ends = " or ".join(f"`{each.text}` (line {each.line})" for each in loop.ends[:2])
        is_only = not loop.is_left_otherwise and len(loop.ends) <= 2
        return f"it ends {'only ' if is_only else ''}by {ends}"
    return "" if loop.is_left_otherwise else "nothing in it ends it"


def why_endless(loop: EndlessLoop, name: str) -> str:
    """Why a loop has not ended, or given a value, in a process of this name."""
    found = way_out(loop)
    if not found:
        return "Nothing has ended it"
    around = loop.given_in
    if loop.gives is not None and around is not None and around.text.startswith("for "):
        return (
            f"{capital(found)}. This line is not reached: most likely what that iterates over is "
            f"empty in {name}, in every round"
        )
    if loop.gives is not None:
        return f"{capital(found)}. This line is not reached in {name}"
    if loop.ends:
        return (
            f"{capital(found)}, which has not come true: most likely it cannot, with the values "
            f"that {name} has there"
        )
    return capital(found)


def end_of_loop(loop: EndlessLoop, process: Process, *, is_draw: bool = False) -> str:
    """What to change in a loop that does not end.

    Args:
        loop: It.
        process: The process that is in it.
        is_draw: See `Spin`.
    """
    advice = f"Look at the values that decide it: mpwatch dump --locals {process.pid}."
    if loop.gives is not None:
        return (
            "Let the loop raise when a whole round has given nothing, in place of beginning the "
            "next one, and see to it that each process gets something to iterate over: fewer "
            f"processes, or a division by a smaller unit. {advice}"
        )
    if is_draw:
        return (
            "Test before the loop whether anything can pass its condition (nothing may be left to "
            "draw, as all of it is taken or excluded), and skip that case; or draw from what is "
            f"left, or count the rounds and raise after a limit. {advice}"
        )
    return (
        "Count the rounds of the loop, and after a limit raise, skip the item, or take what always "
        f"passes; or rule out before the loop what can never pass. {advice}"
    )


def loop_around(index: Index, frames: Sequence[Frame]) -> tuple[Frame, Statement] | None:
    """The innermost loop that the program's own code is in, and the frame that is in it."""
    for frame in own_frames(frames):
        line = source_of(index, frame) if not is_library(frame) else None
        for statement in reversed(line.within if line is not None else ()):
            if statement.text.startswith(("for ", "async for ", "while ")):
                return frame, statement
    return None


_COLLECTS = re.compile(
    r"while (?:[^<]* and )?(len\([\w.]+\)|[\w.]*count\w*|n|size|filled|got) < ([\w.\[\]()]+)"
    r"(?: and .*)?:"
)


def collecting_loop(line: SourceLine | None) -> tuple[Statement, str] | None:
    """The innermost loop around a line that ends when it has a number of items.

    Returns:
        `while len(batch) < self.batch_size:` and the number, `self.batch_size`.
    """
    for header in reversed(line.within if line is not None else ()):
        found = _COLLECTS.fullmatch(header.text)
        if found is not None:
            return header, found[2]
        if header.text.startswith(("for ", "while ")):
            return None
    return None
