"""The source of the lines that findings name: quotes for evidence, and what guards a line."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from mpwatch.describe.frames import is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.stack_patterns import functions_of, main_thread, user_frame
from mpwatch.model.account import ARCHIVE_TABLE, Callers
from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import (
    INNER,
    EndlessLoop,
    Mark,
    MarkKind,
    SlowKind,
    SourceLine,
    Statement,
)

QUOTES = 3
"""Lines quoted in one finding."""
_PLACE = re.compile(r"(?<![\w/.-])([\w.-]{1,80}\.py):(\d{1,6}) ([\w<>]{1,100})")
_ON_RANK = re.compile(
    r"(?<![a-z])rank(?![a-z])|\bis_(main|master|first|chief|coordinator)\w*|\bis_(?:global_|local_)zero\b",
    re.IGNORECASE,
)


def is_on_rank(text: str) -> bool:
    """Whether a condition or a name is about the rank, as far as words show."""
    return _ON_RANK.search(text) is not None


def source_of(index: Index, frame: Frame) -> SourceLine | None:
    """The statement that a frame is at; `None` if its file could not be read."""
    return _lines(index).get((frame.file, frame.line, frame.function))


def are_of_one_function(index: Index, one: Frame, other: Frame) -> bool:
    """Whether two frames are of one function, as far as known; a file may have several so named."""
    if (one.file, one.function) != (other.file, other.function):
        return False
    first, second = source_of(index, one), source_of(index, other)
    known = (first.defined, second.defined) if first and second else (0, 0)
    return not all(known) or known[0] == known[1]


def main_line(index: Index, process: Process) -> tuple[Frame, SourceLine] | None:
    """The frame of the program that a main thread is in, and its statement; `None` without either.

    Derived once for the rules that ask it of every process: half a dozen do.
    """
    return _main_line(index, process.process)


@derived
def _main_line(index: Index, identity: ProcessId) -> tuple[Frame, SourceLine] | None:
    process = index.snapshot.get(identity)
    thread = main_thread(process) if process is not None else None
    frame = user_frame(thread.stack) if thread is not None else None
    line = source_of(index, frame) if frame is not None else None
    return None if frame is None or line is None else (frame, line)


@derived
def _lines(index: Index) -> Mapping[tuple[str, int, str], SourceLine]:
    return {(each.file, each.line, each.function): each for each in index.snapshot.source}


@derived
def _by_place(index: Index) -> Mapping[str, SourceLine | None]:
    """Lines by the words that findings have for them; `None` where two files have one name."""
    found: dict[str, SourceLine | None] = {}
    for line in index.snapshot.source:
        place = f"{line.file.rpartition('/')[2]}:{line.line} {line.function}"
        known = found.get(place, line)
        found[place] = line if known is not None and known.file == line.file else None
    return found


def line_at(index: Index, place: str) -> SourceLine | None:
    """The statement at a place in words, `train.py:57 step`; `None` if it is not known."""
    return _by_place(index).get(place)


Awaited: TypeAlias = Literal["file-removed", "file-made", "variable", "work-done"]
"""What a loop that sleeps and checks again waits for."""


LOOP_ENDS: Mapping[Awaited, str] = {
    "file-removed": "when a file is removed",
    "file-made": "when there is a file",
    "variable": "when a variable of its own process changes",
    "work-done": "when the work that it counts is done",
}


class Condition(NamedTuple):
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
            if header.text.startswith(clause) and _is_in_loop(headers):
                return Condition(awaited, f"around {_quoted(header)}")
    if not headers:
        return None
    kind = _kind_of(headers[-1].text)
    return None if kind is None else Condition(kind, _quoted(headers[-1]))


def _is_in_loop(headers: Sequence[Statement]) -> bool:
    return any(each.text.startswith(("while ", "for ")) for each in headers)


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


def marks(index: Index, kind: MarkKind, process: Process | None = None) -> Sequence[Mark]:
    """Statements of the program of one kind, in the order of files and lines.

    Args:
        index: The snapshot.
        kind: What they do.
        process: Only those in files that its main thread is in.
    """
    found = _marks_by_kind(index).get(kind, ())
    if process is None:
        return found
    thread = main_thread(process)
    files = {each.file for each in own_frames(thread.stack)} if thread is not None else set()
    return [each for each in found if each.file in files]


@derived
def _marks_by_kind(index: Index) -> Mapping[MarkKind, Sequence[Mark]]:
    """All of them, each once. Rules ask for those of some kinds for each line of each process."""
    found: dict[MarkKind, list[Mark]] = {}
    ordered = sorted(
        set(index.snapshot.marks), key=lambda mark: (mark.file, mark.statement.line, mark.about)
    )
    for mark in ordered:
        found.setdefault(mark.kind, []).append(mark)
    return found


def mark_place(mark: Mark) -> str:
    """The place of a mark as in findings: `consumer.py:26 next`."""
    return f"{mark.file.rpartition('/')[2]}:{mark.statement.line} {mark.function}"


def mark_words(mark: Mark) -> str:
    """``` `self.delay *= 2` at consumer.py:26 next ```, with the statement quoted."""
    return f"`{mark.statement.text}` at {mark_place(mark)}"


_OF_ONE_SAMPLE = ("__call__", "__getitem__", "forward")
"""What is drawn in these changes a sample, and not how many of them there are."""


def uneven_draw(index: Index) -> Mark | None:
    """The statement that chooses by chance how many items there are, otherwise in each process.

    Only where one statement does so, and nothing that was read may seed the module `random`.
    """
    found = [each for each in marks(index, "draw") if each.function not in _OF_ONE_SAMPLE]
    return found[0] if len(found) == 1 and not marks(index, "seed") else None


class BatchRounds(NamedTuple):
    """A loop with a collective in each round, over what a batch of the rank contains."""

    header: Statement
    made: str
    """The statement that selects that from the batch."""
    made_at: int
    """Its line, which may be that of the loop."""
    runs_backward: bool
    """Whether its function runs a backward pass after the header."""


def rounds_of_batch(index: Index, frames: Sequence[Frame]) -> BatchRounds | None:
    """The innermost loop of this kind that a thread is in."""
    found = {(each.file, each.statement): each for each in marks(index, "batch-rounds")}
    for frame in own_frames(frames) if found else ():
        line = source_of(index, frame) if not is_library(frame) else None
        for header in reversed(line.within if line is not None else ()):
            mark = found.get((frame.file, header))
            if mark is not None:
                number, _, made = mark.about.partition(", ")
                runs_backward = any(
                    (each.file, each.function) == (mark.file, mark.function)
                    and each.statement.line > header.line
                    for each in marks(index, "backward")
                )
                return BatchRounds(header, made, int(number), runs_backward)
    return None


class Guard(NamedTuple):
    """A condition that decides which ranks reach a line."""

    frame: Frame
    """The line, of the stack of a rank that has reached it."""
    statement: Statement
    leaves: bool
    """Whether the others leave the function at the condition; else the line is inside of it."""

    @property
    def words(self) -> str:
        """`trainer.py:44 save comes after `if rank != 0: return` in line 39`."""
        file = self.frame.file.rpartition("/")[2]
        place = f"{file}:{self.frame.line} {self.frame.function}"
        how = "comes after" if self.leaves else "is inside"
        return f"{place} {how} `{self.statement.text}` of line {self.statement.line}"


def guard_on_rank(index: Index, rank: Process) -> Guard | None:
    """The innermost condition on the rank under which its main thread is where it is."""
    thread = main_thread(rank)
    for frame in own_frames(thread.stack) if thread is not None else ():
        line = source_of(index, frame) if not is_library(frame) else None
        if line is None:
            continue
        for statement in reversed(line.after):
            if _ON_RANK.search(statement.text):
                return Guard(frame, statement, True)
        for statement in reversed(line.within):
            if statement.text.startswith(("if ", "elif ", "else of if ")) and _ON_RANK.search(
                statement.text
            ):
                return Guard(frame, statement, False)
    return None


class UnderRank(NamedTuple):
    """A call of a function with a collective in it that a condition on the rank leads to."""

    words: str
    """`if rank == 0:` of line 34, the call and the collective."""
    call: str
    """With its place."""

    @property
    def advice(self) -> str:
        """What to change where some ranks are one collective apart for it."""
        return (
            "Call what enters the collective on every rank, and leave under the condition only "
            f"what one rank is to do alone: move {self.call} out of it. One more barrier or a "
            "longer timeout does not help: the numbers of calls still differ."
        )


def collective_under_rank(index: Index, frame: Frame) -> UnderRank | None:
    """The last call before a line that only some ranks make, and that enters a collective."""
    line = source_of(index, frame)
    file = frame.file.rpartition("/")[2]
    for each in reversed(line.guarded if line is not None else ()):
        found = [mark for mark in marks(index, "collective") if mark.function == each.name]
        if found and _ON_RANK.search(each.condition.text):
            call = f"`{each.call.text}` at {file}:{each.call.line} {frame.function}"
            return UnderRank(
                f"{call} is under `{each.condition.text}` of line {each.condition.line}, and "
                f"{each.name}() enters {found[0].about} ({mark_words(found[0])})",
                call,
            )
    return None


_ON_DATA = re.compile(
    r"[<>]|\b(?:any|all|isnan|isinf|isfinite|numel|len)\(|loss|best|improv|converg|overflow|empty",
    re.IGNORECASE,
)
_SAME_FOR_ALL = re.compile(
    r"%|\b(?!return\b)(?:\w*(?:step|epoch|iter|batch|index|idx|round|turn)\w*|[ijkn])\b"
    r"|\b(?:args|opts?|cfg|conf|config|hparams|flags|environ)\b|\b(?:use|enable)_",
    re.IGNORECASE,
)
"""In a condition on a counter or a setting, which ranks that do the same rounds meet alike."""


def branch_of_one_side(
    index: Index, inside: Sequence[Frame], elsewhere: Sequence[Frame]
) -> Guard | None:
    """The condition on data under which one thread is where it is, and another is not.

    Both run the same functions down to one, in which they are at different lines. A condition on a
    counter or on the rank is none, nor one that both are under. One that no loop repeats need not
    be on data: it was met once, by one of them.

    Args:
        index: The snapshot.
        inside: Frames of the thread that has met the condition.
        elsewhere: Frames of the other one.
    """
    theirs = program_frames(elsewhere)[::-1]
    own = program_frames(inside)[::-1]
    common = 0
    for mine, its in zip(own, theirs, strict=False):
        if (mine.file, mine.function) != (its.file, its.function):
            break
        if mine.line != its.line:
            common += 1
            break
        common += 1
    if not common or len(own) < common or own[common - 1].line == theirs[common - 1].line:
        return None
    line = source_of(index, theirs[common - 1])
    shared = {*line.within, *line.after} if line is not None else set()
    is_once = _are_run_once(index, own)
    for frame in reversed(own[common - 1 :]):
        line = source_of(index, frame)
        if line is None:
            return None
        for statements, leaves in ((line.within, False), (line.after, True)):
            for statement in reversed(statements):
                is_branch = leaves or statement.text.startswith(("if ", "elif ", "else of if "))
                if is_branch and statement not in shared and _is_own(statement.text, is_once):
                    return Guard(frame, statement, leaves)
    return None


def _are_run_once(index: Index, frames: Sequence[Frame]) -> bool:
    """Whether none of these lines is in a loop, as far as their functions show."""
    lines = [source_of(index, frame) for frame in frames]
    return all(
        line is not None and not any(_is_in_loop((each,)) for each in line.within) for line in lines
    )


def _is_own(condition: str, is_once: bool) -> bool:
    """Whether each rank may meet a condition differently."""
    if _depends_on_data(condition):
        return True
    return is_once and not (_SAME_FOR_ALL.search(condition) or _ON_RANK.search(condition))


def _depends_on_data(condition: str) -> bool:
    """Whether ranks that do the same rounds may meet a condition differently."""
    return (
        _ON_DATA.search(condition) is not None
        and _SAME_FOR_ALL.search(condition) is None
        and _ON_RANK.search(condition) is None
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


class Spin(NamedTuple):
    """A loop without an end that a process has not left while stacks were taken."""

    process: Process
    frame: Frame
    """Where its function is now."""
    loop: EndlessLoop
    since_s: float
    """When the first of those stacks was taken, monotonic."""

    @property
    def words(self) -> str:
        """`the loop `while True:` of line 33 in batches()`."""
        header = self.loop.header
        return f"the loop `{header.text}` of line {header.line} in {self.frame.function}()"


SPIN_STACKS = 6
"""Stacks at several lines of a loop, and none outside of it."""
RECENT_S = 20.0
"""The last of them has to be as new as this."""


def spin(index: Index, process: Process) -> Spin | None:
    """The loop without an end in which a process computes, for as long as stacks show it.

    A loop that takes work, sends, sleeps or makes steps of training is none: others go round by
    design. Stacks at several of its lines, called from one and the same line, show that it goes
    round, and that no value of a generator was taken outside of it.
    """
    thread = main_thread(process)
    account = index.snapshot.account.processes.get(process.process)
    if thread is None or account is None or not account.uncounted:
        return None
    stretches = (account.main.inside(), *account.uncounted[0].callers[-1:])
    recent = [each for each in stretches if each and index.snapshot.at_s - each.taken_s < RECENT_S]
    inside = next(filter(_turns, recent), None)
    for frame in own_frames(thread.stack) if inside is not None else ():
        line = source_of(index, frame) if not is_library(frame) else None
        if line is None or line.endless is None:
            continue
        last = inside.frames[-1] if inside is not None else None
        is_it = last is not None and (last.file, last.function) == (frame.file, frame.function)
        if inside is None or not is_it or line.endless.exchanges:
            return None
        return Spin(process, frame, line.endless, inside.since_s)
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


def end_of_loop(loop: EndlessLoop, process: Process) -> str:
    """What to change in a loop that does not end."""
    advice = f"Look at the values that decide it: mpwatch dump --locals {process.pid}."
    if loop.gives is not None:
        return (
            "Let the loop raise when a whole round has given nothing, in place of beginning the "
            "next one, and see to it that each process gets something to iterate over: fewer "
            f"processes, or a division by a smaller unit. {advice}"
        )
    return (
        "Count the rounds of the loop, and after a limit raise, skip the item, or take what always "
        f"passes; or rule out before the loop what can never pass. {advice}"
    )


def capital(words: str) -> str:
    """The words with a capital letter at their beginning."""
    return words[:1].upper() + words[1:]


_CACHED = re.compile(r"^if (?:.+ )?in ([\w.]+): return \1\b")
"""`if key in self.items: return self.items[key]`."""


def cache_miss(index: Index, frames: Sequence[Frame]) -> tuple[Frame, Statement] | None:
    """The innermost line that is reached where a cache has no entry, and the lookup before it."""
    for frame in own_frames(frames):
        line = source_of(index, frame) if not is_library(frame) else None
        for statement in line.after if line is not None else ():
            if _CACHED.search(statement.text):
                return frame, statement
    return None


def loop_around(index: Index, frames: Sequence[Frame]) -> tuple[Frame, Statement] | None:
    """The innermost loop that the program's own code is in, and the frame that is in it."""
    for frame in own_frames(frames):
        line = source_of(index, frame) if not is_library(frame) else None
        for statement in reversed(line.within if line is not None else ()):
            if statement.text.startswith(("for ", "async for ", "while ")):
                return frame, statement
    return None


class Reopened(NamedTuple):
    """A loop over a file that is opened anew in each round of a loop around it."""

    opened: Statement
    """`with open(path) as f:`."""
    opened_in: Frame
    rounds: Statement
    rounds_in: Frame


_OPENS = re.compile(r"^(?:async )?with .*\bopen\(")
_OVER_LINES = re.compile(r"^for .+ in ")


def reopened(index: Index, frames: Sequence[Frame]) -> Reopened | None:
    """The innermost function of the program that goes through a file from its start, in rounds.

    Its caller is in a loop, in which the function is called again.
    """
    own = program_frames(frames)
    for number, frame in enumerate(own):
        line = source_of(index, frame)
        opens = [each for each in line.within if _OPENS.match(each.text)] if line else []
        if line is None or not opens:
            continue
        inside = line.within[line.within.index(opens[-1]) :]
        loop = loop_around(index, own[number + 1 :])
        if loop is not None and any(_OVER_LINES.match(each.text) for each in inside):
            return Reopened(opens[-1], frame, loop[1], loop[0])
    return None


def loop_ends(index: Index, frame: Frame, own_only: bool = False) -> str:
    """The conditions by which the loop around a frame ends early; empty if none is known.

    `if self.is_done: break (line 54)`.

    Args:
        index: The snapshot.
        frame: The frame.
        own_only: Without those on a counter of rounds, which ranks that do the same rounds meet
            alike.
    """
    line = source_of(index, frame)
    found = line.ends if line is not None else ()
    if own_only:
        found = tuple(each for each in found if not _counts_rounds(each.text))
    return " or ".join(f"`{each.text}` (line {each.line})" for each in found[:2])


_CLOCK = re.compile(
    r"\b(?:now|\w*elapsed\w*|wall\w*|\w*clock\w*|perf_counter|monotonic|time\.time|\w+_seconds"
    r"|\w+_hours|\w+_minutes|deadline)\b"
)


def asks_the_time(index: Index, condition: str) -> bool:
    """Whether a condition tests a clock, as far as words show, or calls what compares its time."""
    if _CLOCK.search(condition) is not None:
        return True
    named = {one or other for one, other in _ASKED.findall(condition)}
    return any(each.about in named for each in marks(index, "asks-clock"))


_ASKED = re.compile(r"(\w+)\(|\.(\w+)\b(?!\()")
"""Functions, and attributes, which may be properties."""


def ends_by_clock(index: Index, frame: Frame) -> tuple[Statement, str] | None:
    """The loop around a frame that ends by a clock, and what tests it, as the program has it.

    The condition of a `while`, or of an `if` in the innermost loop that leaves it. Each process has
    a clock of its own, or has begun to count at another moment.
    """
    line = source_of(index, frame)
    loops = [each for each in line.within if each.text.startswith(_LOOPS)] if line else []
    for header in reversed(loops):
        parts = re.split(r"\band\b|\bor\b", header.text[len("while ") :].rstrip(" :"))
        is_while = header.text.startswith("while ")
        found = next((each.strip() for each in parts if asks_the_time(index, each)), None)
        if is_while and found is not None:
            return header, found
    for each in line.ends if line is not None and loops else ():
        if asks_the_time(index, each.text):
            return loops[-1], each.text
    return None


_LOOPS = ("while ", "for ", "async for ")


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


_ROUNDS = re.compile(
    r"\b(?:\w*(?:step|epoch|iter|idx|index|round)\w*|[ijkn])\b(?!\()", re.IGNORECASE
)


def _counts_rounds(condition: str) -> bool:
    """Whether every comparison of a condition is of a counter: `if step >= args.steps: break`."""
    test = condition.removeprefix("if ").rpartition(":")[0]
    parts = re.split(r"\band\b|\bor\b", test)
    return all(_ROUNDS.search(re.split(r"[<>=!%]", part, maxsplit=1)[0]) for part in parts)


def begun_again(
    index: Index, inside: Sequence[Frame], ahead: Sequence[Frame]
) -> tuple[Frame, Statement] | None:
    """The loop that one thread has begun anew while another one is in a round of it.

    Both run the same functions down to the one with the loop. The thread that is ahead is in an
    `__iter__`, which the header of a `for` calls once.

    Returns:
        The frame of the one that is inside, and the header.
    """
    theirs = program_frames(inside)[::-1]
    own = list(reversed(own_frames(ahead)))
    for its in theirs:
        mine = next((n for n, f in enumerate(own) if _is_same(f, its)), None)
        if mine is None:
            return None
        frame, own = own[mine], own[mine + 1 :]
        if frame.line == its.line:
            continue
        line, header = source_of(index, its), source_of(index, frame)
        begins = bool(own) and own[0].function.rpartition(".")[2] == "__iter__"
        if line is None or header is None or not begins:
            return None
        loops = [each for each in line.within if each.text.startswith(("for ", "async for "))]
        return (its, loops[-1]) if loops and loops[-1] == header.statement else None
    return None


def passed_loop(
    index: Index, inside: Sequence[Frame], ahead: Sequence[Frame]
) -> tuple[Frame, Statement] | None:
    """The loop of which one thread is past the end, in the function in which another is in it.

    Returns:
        The frame of the one that is inside, and the header.
    """
    mine = {(f.file, f.function): f for f in program_frames(ahead)}
    for its in own_frames(inside):
        past = mine.get((its.file, its.function))
        line = None if past is None else source_of(index, its)
        after = None if past is None else source_of(index, past)
        if past is None or line is None or after is None or past.line <= its.line:
            continue
        loops = [each for each in line.within if each.text.startswith(_LOOP_HEADERS)]
        if loops and line.defined == after.defined and loops[-1] not in after.within:
            return its, loops[-1]
    return None


_LOOP_HEADERS = ("for ", "async for ", "while ")


def _is_same(frame: Frame, other: Frame) -> bool:
    return (frame.file, frame.function) == (other.file, other.function)


class Copying(NamedTuple):
    """A statement that copies all that was added before, to add to it or to go through it."""

    whole: str
    """`self.track`."""
    words: str
    """`np.concatenate copies all of self.track each time`."""
    is_sure: bool
    """Whether it does so for every type that the variable may have."""
    is_joined: bool = True
    """Whether it joins the parts; it may do anything else with them."""

    @property
    def advice(self) -> str:
        """What to do."""
        if not self.is_joined:
            return (
                f"Keep the result up to date with each part that is added to {self.whole}, or "
                "compute it once at the end."
            )
        return (
            f"Collect the parts in a list, and join them once where {self.whole} is needed as a "
            "whole; or write them into a buffer that is made larger by half when it is full (a "
            "bytearray, an array with room at its end)."
        )


_JOINS = r"(?:concatenate|concat|cat|vstack|hstack|dstack|append|column_stack|row_stack|stack|join)"
_JOINED = re.compile(rf"(?P<call>(?:[\w\"']+\.)*{_JOINS})\((?P<given>.*)")
_GIVEN = re.compile(
    r"(?<![\w.])(?P<call>(?:[\w\"']+\.)*(?!(?:len|append|appendleft|add|extend|insert|isinstance|id)\()\w+)"
    r"\((?P<given>.*)"
)
_ASSIGNS = re.compile(r"(?P<whole>(?:\w+\.)*\w+) (?P<adds>\+?)= (?P<value>.+)")
_MAY_BE_COPIED = "bytes, str or a tuple"


def copying(index: Index, place: str) -> Copying | None:
    """What the statement at a place in words copies each time; `None` if that is not seen.

    `x = np.concatenate([x, part])` and `x = x + part` copy x for each part, and so does
    `x += part` where x cannot be changed; a list that only grows, and that is joined in each round,
    is copied as well. A statement of numbers looks alike, but takes no time.
    """
    line = line_at(index, place)
    text = line.statement.text if line is not None else ""
    joined, found = _JOINED.search(text), _ASSIGNS.match(text)
    whole = found["whole"] if found is not None else ""
    if found is not None and found["adds"]:
        return Copying(whole, f"+= copies all of {whole} if that is {_MAY_BE_COPIED}", False)
    if found is not None and found["value"].startswith(f"{whole} + "):
        words = f"+ copies all of {whole} if that is a list, {_MAY_BE_COPIED}"
        return Copying(whole, words, False)
    if found is not None and joined is not None and _is_part(whole, joined["given"]):
        return Copying(whole, f"{joined['call']} copies all of {whole} each time", True)
    for mark in marks(index, "kept"):
        if joined is not None and _is_part(mark.about, joined["given"]):
            words = f"{joined['call']} copies all of {mark.about} each time, which only grows"
            return Copying(mark.about, words, True)
        is_given = _GIVEN.search(text) if line is not None and mark.file == line.file else None
        if is_given is not None and _is_part(mark.about, is_given["given"]):
            call = is_given["call"]
            words = f"{call} is given all of {mark.about} each time, which only grows"
            return Copying(mark.about, words, False, is_joined=False)
    return None


def _is_part(name: str, expression: str) -> bool:
    """Whether an expression has a name as a whole: not `x.y`, `x[0]` or `x()` for `x`."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.(\[])", expression) is not None


class Kept(NamedTuple):
    """What keeps memory, as the source shows."""

    evidence: str
    cause: str
    advice: str


def kept_by_cycle(index: Index) -> Kept | None:
    """What itertools.cycle keeps, where the source has one call of it; `None` otherwise."""
    found = marks(index, "cycle")
    if len({each.statement for each in found}) != 1:
        return None
    words = mark_words(found[0])
    return Kept(
        f"{words} keeps what it gives",
        f"Most likely {words}: itertools.cycle keeps a copy of every element of {found[0].about} "
        "until its first pass has ended, and all of them from then on.",
        f"Use a loop that begins anew: while True: yield from {found[0].about}. gc.collect() does "
        "not help, and restarted workers begin to keep again.",
    )


def uncollected(index: Index, process: Process) -> Kept | None:
    """Reference cycles that a process does not collect, as the source shows.

    Its parent switches the collector off before it forks the process, or it does so itself, and
    nothing that was read may switch it on, or collect, in the process.
    """
    parent = index.snapshot.get(process.parent) if process.parent is not None else None
    is_exec = process.role not in _FORKED or process.start_method in ("spawn", "forkserver")
    of_parent = _functions(parent) if parent is not None and not is_exec else frozenset()
    files = {file for file, _ in of_parent or _functions(process)}
    off = [each for each in marks(index, "gc-off") if each.file in files]
    on = marks(index, "gc-on")
    if not off or any(
        each.about != "collect" or (each.file, each.function) not in of_parent for each in on
    ):
        return None
    where = mark_words(off[0])
    how = (
        f"{where} was called before {called(parent)} forked it, which it inherits"
        if parent is not None and of_parent
        else f"{where} switches the garbage collector off"
    )
    by_parent = " (the one that collects is its parent)" if on else ""
    cycles = marks(index, "self-reference")
    made = (
        f" {mark_words(cycles[0])} makes such a cycle each time that {cycles[0].function}() is "
        "called: an inner function that calls itself refers to itself."
        if cycles
        else " Exceptions that are kept, objects that refer to their parent, and inner functions "
        "that call themselves are such cycles."
    )
    return Kept(
        "nothing in the source that was read lets the collector run in "
        f"{called(process)}{by_parent}",
        f"Most likely objects in reference cycles are never freed there: {how}.{made} All that a "
        "cycle refers to, such as arrays and tensors, stays.",
        "Let the collector run in these processes: gc.enable() in the worker_init_fn or the "
        "initializer, or gc.collect() there at intervals; or do not switch it off. Or break "
        f"the cycles{_of_cycle(cycles)}. gc.collect() in another process, smaller queues or fewer "
        "batches ahead do not help.",
    )


_FORKED = ("loader-worker", "pool-worker", "spawned")


def _functions(process: Process) -> frozenset[tuple[str, str]]:
    """The functions that the main thread of a process is in, with their files."""
    thread = main_thread(process)
    frames = own_frames(thread.stack) if thread is not None else ()
    return functions_of(frames)


def _of_cycle(cycles: Sequence[Mark]) -> str:
    return f": make {cycles[0].about} a function of its module" if cycles else ""


_UNDER_NO_GRAD = (
    "under torch.no_grad() or torch.inference_mode(), where nothing is to be trained by it"
)


def kept_graphs(index: Index, process: Process, inside: Sequence[Frame]) -> Kept | None:
    """What keeps autograd graphs, as the source of the files that a main thread is in shows.

    Args:
        index: The snapshot.
        process: The process that grows.
        inside: The calls that its main thread has not left for a while.

    Returns:
        `None` where autograd may be switched off, and where a graph is not the only thing kept.
    """
    staying = functions_of(inside)
    running = staying | _functions(process)
    off = {(each.file, each.function) for each in marks(index, "no-grad")}
    is_off = any("set_grad_enabled" in m.statement.text for m in marks(index, "no-grad"))
    if is_off or not off.isdisjoint(running):
        return None

    found = [
        (mark, kept)
        for mark, kept in _graphs_kept(index, process, running)
        if (mark.file, mark.function) not in off
        # A variable of a function stays only as long as the function does.
        if "." in mark.about.partition(",")[0]
        or (mark.file, mark.function) in (running if mark.kind == "outputs-kept" else staying)
    ]
    at_work = [kept for mark, kept in found if (mark.file, mark.function) in running]
    if at_work:
        return at_work[0]
    return found[0][1] if len({(mark.file, mark.function) for mark, _ in found}) == 1 else None


def _graphs_kept(
    index: Index, process: Process, running: Container[tuple[str, str]]
) -> Iterator[tuple[Mark, Kept]]:
    """The statements that keep graphs in the files that a main thread is in."""
    for mark in marks(index, "graph-carried", process):
        yield mark, _carried_graph(mark)
    for mark in marks(index, "outputs-kept", process):
        yield mark, _kept_outputs(mark)
    for mark in marks(index, "graph-running"):
        yield mark, _running_graph(mark)
    for mark in marks(index, "graph-summed", process):
        yield mark, _summed_graph(mark)
    trained = {(each.file, each.function) for each in marks(index, "backward")}
    # A backward pass frees what the graphs of its process refer to, but not one that is computed
    # where it is passed on.
    is_trained = any(each in running for each in trained)
    others = [*marks(index, "kept", process), *marks(index, "cache", process)]
    for mark in marks(index, "graph-kept", process) if not is_trained else ():
        container, line, *emptied = mark.about.split(", ", 2)
        is_other = any(each.statement != mark.statement for each in others)
        if not (emptied and is_other):
            yield mark, _kept_graph(mark, container, f"in line {line}", "", emptied)
    for mark in marks(index, "graph-passed", process):
        if is_trained and (mark.file, mark.function) not in trained:
            continue
        method, place, line = mark.about.split(", ")
        kept = [each for each in marks(index, "argument-kept") if each.function == method]
        of = [each for each in kept if each.about.startswith(f"{place}, ")]
        if len({each.file for each in kept}) == 1 and len(of) == 1:
            name, container = mark.file.rpartition("/")[2], of[0].about.partition(", ")[2]
            where, passed = f"at {name}:{line} {mark.function}", f", and {mark_words(mark)} passes"
            # What is passed is kept by an object, so it stays.
            yield (
                mark._replace(about=container),
                _kept_graph(of[0], container, where, f"{passed} to it", ()),
            )


def _carried_graph(mark: Mark) -> Kept:
    state = mark.about
    return Kept(
        f"nothing in its file detaches {state}, which {mark_words(mark)} returns and is given",
        f"Most likely {mark_words(mark)} keeps autograd graphs: {state} of one call goes into the "
        "next one together with its graph, nothing in that file detaches it, and no no_grad() or "
        "inference_mode() is seen around it (eval() does not switch autograd off). So the graph "
        "becomes longer with each call, and all intermediate results since the first one stay in "
        "memory.",
        f"Call it {_UNDER_NO_GRAD}; else detach {state} after each call ({state}.detach(), of a "
        "tuple each tensor). gc.collect(), shorter queues or clearing other lists do not help.",
    )


def _running_graph(mark: Mark) -> Kept:
    state = mark.about
    return Kept(
        f"{mark_words(mark)} computes {state} from itself and from the batch, and detaches nothing",
        f"Most likely {mark_words(mark)} keeps autograd graphs: each value of {state} is computed "
        "from the one before and from tensors of the batch, with gradients on. So it refers to the "
        "graphs of all batches, one more with each step.",
        f"Update {state} under torch.no_grad(), or from detached tensors (mean.detach()). "
        "gc.collect() or clearing other lists does not help.",
    )


def _summed_graph(mark: Mark) -> Kept:
    total, _, loss = mark.about.partition(", ")
    return Kept(
        f"{mark_words(mark)} adds {loss} itself to {total}, with its autograd graph",
        f"Most likely {mark_words(mark)} keeps autograd graphs: {loss} is a tensor, and the sum "
        f"{total} refers to the graphs of all that were added to it, until it begins anew. "
        "backward() frees the tensors that a graph has saved, and not the graph.",
        f"Add a number: {total} += {loss}.item(), or {loss}.detach(). gc.collect() does not help.",
    )


def _kept_outputs(mark: Mark) -> Kept:
    container, line, loop = mark.about.split(", ")
    return Kept(
        f"{mark_words(mark)} keeps what line {line} has returned in each round of line {loop}",
        f"Most likely {mark_words(mark)} keeps the whole result of each step in {container} until "
        f"the loop of line {loop} ends: all tensors in it, with what is left of their graphs. "
        "Memory rises with each step, and falls at the end of that loop.",
        f"Add only what is needed after the loop to {container}: loss.item(), or detach() of small "
        "tensors. gc.collect() does not help while they are kept.",
    )


def _kept_graph(
    mark: Mark, container: str, where: str, passed: str, emptied: Sequence[str]
) -> Kept:
    until = f" until {emptied[0]} empties it" if emptied else ""
    return Kept(
        f"{mark_words(mark)} adds what a model has computed {where}, without detach() or item()",
        f"Most likely {mark_words(mark)} keeps autograd graphs: what a model has computed {where}"
        f"{passed}, is kept without detach() in {container}{until}, and no no_grad() or "
        "inference_mode() is seen around that (eval() does not switch autograd off). Each tensor "
        "keeps the graph of its batch, and with it all intermediate results of the forward pass.",
        f"Run the forward pass {_UNDER_NO_GRAD}; else keep .detach() of the tensor, or .item() of "
        "one number.",
    )


class Costly(NamedTuple):
    """A statement that takes long for what it does."""

    words: str
    """`self.rows[i] steps through the deque self.rows from its nearer end`."""
    cause: str
    """Why that takes long, as the rest of a sentence or another one."""
    advice: str


_COPIED = re.compile(r"(?P<on>.+)\.(copy|clone)\(\)|[\w.]+\((?P<given>.+)\)", re.S)
_WALKED = re.compile(r"(deque|list) ([^,]+), (.+)", re.S)


_LONGER = (
    ": the more that is, the longer each access takes, and a container that still fills up makes "
    "the job slower and slower."
)
_SLOW: Mapping[SlowKind, tuple[str, str, str]] = {
    "all-of": (
        "goes through the whole list each time",
        ": the longer the list, the longer each call takes.",
        "Keep the result up to date with each element that is added (a running sum, a heap, a set "
        "beside the list), or compute it once at the end.",
    ),
    "archive": (
        "opens the archive anew each time and reads its table of contents",
        ": for each item that is done once more, and of a zip or tar archive it takes a time that "
        "grows with the number of all its entries, however little is read of it.",
        "Open the archive once in each process and keep it: where it is first used (if "
        "self._archive is None:), in the worker_init_fn of a DataLoader or the initializer of a "
        "Pool, but after the fork, as forked processes that share one open file share its "
        "position. Or read its table once and keep the offsets, or unpack it. More workers, more "
        "prefetching or a faster disk do not help: it is the reading of the table that takes cpu.",
    ),
    "choice": (
        "goes through all weights or elements for each draw",
        ": each call takes a time that grows with their number.",
        "Draw many at once (size=...), keep the cumulative sums and use numpy.searchsorted, or use "
        "numpy.random.default_rng().choice(..., replace=False), which permutes only what it draws.",
    ),
    "collect": (
        "goes through all objects of the process",
        ". Without it, garbage in cycles is collected as soon as enough new objects were made.",
        "Take gc.collect() out of the loop, or call it once in many rounds.",
    ),
    "copy": (
        "copies all of {} each time",
        ": each call takes a time that grows with what is kept, not with the part that is used.",
        "Pick what is used first, and copy only that (rows[index] copies already in numpy and "
        "torch). More workers or cores do not make a copy that is not needed faster.",
    ),
    "dates": (
        "parses each time anew by its pattern, in Python",
        ": that takes some ten times as long as a parser for one fixed form.",
        "Use datetime.fromisoformat() where the form is that of ISO 8601, cut the numbers out of a "
        "fixed form by their place, or parse a whole column at once (pandas.to_datetime(column, "
        "format=...), numpy.datetime64). Keep what was parsed where the same text comes again.",
    ),
    "deepcopy": (
        "copies object by object, in Python",
        ": all that the object refers to is copied, also what does not change.",
        "Copy only what is changed (clone() of a tensor, copy() of a dict), or share what is not.",
    ),
    "elements": (
        "takes single elements of a tensor",
        ": each of them is a tensor of its own, and where that is on the GPU, each comparison or "
        "conversion launches a kernel and waits until it is through, which takes many times as "
        "long as the same with numbers of Python, while the GPU has hardly anything to compute.",
        "Move the tensor to the CPU once before the loop (rows = tensor.tolist(), or .cpu()), or "
        "compute on whole tensors: one comparison gives the mask of all elements. A larger batch, "
        "a faster GPU or torch.compile do not help.",
    ),
    "empty-cache": (
        "waits for the GPU and gives its cached memory back",
        ": the allocations after it have to ask the driver for memory again.",
        "Take empty_cache() out of the loop: memory in the cache is used again without it.",
    ),
    "files": (
        "looks for files in all folders below one, each time",
        ": each call takes a time that grows with the number of files and folders there, also with "
        "those of an environment (.venv), a cache or data that lie below.",
        "Look once and keep the result; look again only after some seconds, in a thread of its "
        "own, or when inotify tells of a change (watchdog, watchfiles). Look only in the folder "
        "that is needed, without those below.",
    ),
    "indented": (
        "writes JSON in Python and not by the encoder in C, as it has an indent",
        ": that takes several times as long for the same data.",
        "Leave out indent= (python -m json.tool shows such a file with one), and call json.dumps() "
        "and one write() in place of json.dump(), which writes in small pieces.",
    ),
    "list-to-array": (
        "converts a list to an array value by value",
        ": each element is looked at and copied by itself.",
        "Fill one array of the final size (numpy.empty, then rows by index), or use numpy.stack "
        "for a list of arrays of one shape. More workers or threads do not help.",
    ),
    "list-to-tensor": (
        "converts a list to a tensor value by value",
        ": of a list of arrays, each number becomes a Python object first.",
        "Make one array first: torch.from_numpy(numpy.stack(list)), or torch.stack for a list of "
        "tensors. More workers or threads do not help.",
    ),
    "metadata": (
        "looks for the files of installed packages and reads them",
        ": each call goes through the folders of sys.path.",
        "Ask once, when the module is imported, and keep the answer.",
    ),
    "rows": (
        "makes a new object of each row of the data frame",
        ": that costs far more than what is done with the row.",
        "Take whole columns (to_numpy()), or itertuples() where rows are needed.",
    ),
    "single-values": (
        "reads one number of a tensor or array a call",
        ": each call costs many times what it reads.",
        "Convert all of it once before the loop (tolist(), numpy()), or compute on whole tensors.",
    ),
    "stack": (
        "finds the file, module and lines of source of every caller",
        ": for each frame of the stack it asks the file system, goes through the loaded modules "
        "and reads lines of source. That takes milliseconds a call, more the deeper the stack is, "
        "and whatever calls it for each item or check pays for it each time.",
        "Where only names or files of callers are needed, go through the frames themselves: "
        "sys._getframe(1), then frame.f_back, with frame.f_code.co_filename or co_name, which "
        "reads no file. Or decide once and keep the answer, or do it only where debugging is "
        "switched on. A faster model, more threads or more clients do not help.",
    ),
}
"""What a slow expression does, why that takes long, and what to do."""


def costly(index: Index, place: str) -> Costly | None:
    """Why the statement at a place in words takes long; `None` if that is not seen."""
    line = line_at(index, place)
    if line is None:
        return None
    if (rewritten := _rewritten(index, line)) is not None:
        return rewritten
    for mark in marks(index, "slow"):
        kind, _, text = mark.about.partition(": ")
        is_here = (
            mark.statement == line.statement
            or (kind == "files" and (mark.function == line.function or _goes_through(mark, line)))
            or (kind == "archive" and mark.statement in line.within and _reads_table(index, place))
        )
        if mark.file == line.file and is_here and text:
            for known, (does, cause, advice) in _SLOW.items():
                if known == kind:
                    copied = _COPIED.fullmatch(text)
                    all_of = (copied["on"] or copied["given"]) if copied is not None else ""
                    return Costly(f"{text} {does.format(all_of)}", cause, advice)
    for mark in marks(index, "walks"):
        found = _WALKED.fullmatch(mark.about)
        if found is None or (mark.file, mark.statement) != (line.file, line.statement):
            continue
        kind, name, text = found.groups()
        if text.startswith(f"{name}["):
            return Costly(
                f"{text} steps through the deque {name} from its nearer end",
                _LONGER,
                f"Keep what {name} holds in a list with a position to write at (index modulo its "
                "length) or in arrays made at full size: each element of these is found at once. "
                "A deque is fast at its two ends only.",
            )
        if text.startswith((f"{name}.pop(", f"{name}.insert(")):
            return Costly(
                f"{text} moves all that the list {name} holds by one place",
                _LONGER,
                f"Make {name} a collections.deque: popleft() and appendleft() move nothing.",
            )
        return Costly(
            f"{text} goes through the {kind} {name} until it finds it",
            _LONGER,
            f"Keep a set, or a dict of positions, beside {name}: it is found there at once.",
        )
    return _costly_pattern(index, line)


_REWRITTEN = re.compile(r"(?P<whole>.+), (?P<adder>\w+), (?P<line>\d+); (?P<where>.+)", re.S)


def _rewritten(index: Index, line: SourceLine) -> Costly | None:
    """What writes all that was collected, for each item that is added to it."""
    for mark in marks(index, "rewrites"):
        found = _REWRITTEN.fullmatch(mark.about)
        if found is None or (mark.file, mark.statement) != (line.file, line.statement):
            continue
        file, whole = mark.file.rpartition("/")[2], found["whole"]
        where = found["where"]
        where = where if where.startswith("each call") else f"each round of the loop at {where}"
        return Costly(
            f"all of {whole} is encoded and written again for each item",
            f". {file}:{found['line']} {found['adder']} adds to {whole}, nothing removes from it, "
            f"and all of it is written in {where}: each item takes longer than the one before, and "
            "all together a time like the square of their number.",
            "Append each item to the file by itself: a line of JSON (open it with mode 'a' and "
            "write json.dumps(item) with a line end), a row (to_csv(mode='a', header=False)), one "
            "pickle after another, or a row of sqlite, and read them one by one at the next start. "
            "Or write all of it only once in some minutes and at the end. To leave out indent= or "
            "to use a faster encoder is a constant factor only: it still becomes slower with each "
            "item. A faster disk, a larger queue or more processes do not help.",
        )
    return None


@derived
def _reads_table(index: Index, place: str) -> bool:
    """Whether a process reads the table of an archive at a line, as getmember() of a tar does."""
    return any(
        each.what == ARCHIVE_TABLE and each.place == place
        for account in index.snapshot.account.processes.values()
        if account.uncounted
        for bucket in account.main.buckets
        for each in bucket.tally.seen
    )


def _goes_through(mark: Mark, line: SourceLine) -> bool:
    """Whether a comprehension at a line uses what a statement has given to a variable."""
    given = re.match(r"(\w+) = ", mark.statement.text)
    if given is None or line.function not in INNER:
        return False
    return re.search(rf"\b{given[1]}\b", line.statement.text) is not None


_USES_PATTERN = re.compile(
    r"\b([\w.]+)\.(sub|subn|search|match|fullmatch|findall|finditer|split)\("
)


_NAMES_PATTERN = re.compile(r"[\w.]+\s*(?::[^=]+)?= ")


def _costly_pattern(index: Index, line: SourceLine, *, is_named: bool = False) -> Costly | None:
    """A regular expression that can match the same text in many ways, at a line that uses one.

    Of several in the file, the one whose name the line has; else the first that has no name, unless
    it has to be named at the line.
    """
    variable = [
        each.about.partition(", ")
        for each in marks(index, "uses-wide-pattern")
        if (each.file, each.function) == (line.file, line.function)
        or (each.file == line.file and line.function in INNER)
        if line.statement.line <= each.statement.line <= max(line.line, line.statement.line)
    ]
    if variable:
        places = dict.fromkeys(each[0] for each in variable)  # `5`, and `rules.py:5` elsewhere
        words = (each if ":" in each else f"line {each}" for each in places)
        return _costs_of_pattern(variable[0][2], " and ".join(words))
    used = _USES_PATTERN.search(line.statement.text)
    if used is None:
        return None
    found = [each for each in marks(index, "wide-pattern") if each.file == line.file]
    named = [
        each
        for each in found
        if re.match(
            rf"(?:\w+\.)*{re.escape(used[1].rpartition('.')[2])}\s*[:=]", each.statement.text
        )
        or each.statement == line.statement
    ]
    # A variable may go through patterns of a list or a dict; one of another name is another one.
    listed = [each for each in found if not _NAMES_PATTERN.match(each.statement.text)]
    is_of_text = used[2] == "split"  # a method of str as well
    mark = (named or (() if is_of_text or is_named else listed) or (None,))[0]
    if mark is None:
        return None
    return _costs_of_pattern(mark.about, f"line {mark.statement.line}")


def _costs_of_pattern(pattern: str, place: str) -> Costly:
    """What a regular expression costs that can match the same text in many ways."""
    return Costly(
        f"the regular expression {pattern} of {place} can match the same text in many ways",
        ". Where two of its repeats can take the same characters, each beginning and each way to "
        "divide a text is tried before it is given up: the time grows with the square of the "
        "length of a text without such a place, or faster: a long word, such as an encoded file, "
        "takes seconds, and with some patterns one text (a tag that is never closed) takes for "
        "ever.",
        f"Let the repeats of {pattern} exclude each other ([^\\s@]+@[^\\s@]+ in place of "
        "\\S+@\\S+), bound them ({1,64}), or pass over very long words before. More workers, "
        "cores or another chunksize do not help.",
    )


_IN_RE = re.compile(r"/re(?:/__init__)?\.py$")
"""The file of `re` in stacks; the matching itself is native code, which is called at its lines."""


def wide_pattern(index: Index, stack: Sequence[Frame]) -> Costly | None:
    """The ambiguous regular expression that a thread matches; `None` where it matches none.

    The thread has to be at the line itself, or in a function of `re` that the line calls: at the
    same line it may as well be in another function of a library. In words for a line that has not
    come back, where a single text may take for ever.
    """
    frames, frame = own_frames(stack), user_frame(stack)
    within = frames[:2] if frames and _IN_RE.search(frames[0].file) else frames[:1]
    if frame is None or is_library(within[-1]):
        return None
    line = source_of(index, frame)
    found = _costly_pattern(index, line, is_named=True) if line is not None else None
    if found is None:
        return None
    return found._replace(
        cause=(
            ": where one part of a text begins like a match and then does not end like one, each "
            "way to divide it is tried, and for some patterns each further character doubles the "
            "time. Most likely one text of that kind is being matched, and that does not end in "
            "any useful time. re holds the GIL meanwhile: no other thread of the process runs, and "
            "a timeout of a thread does not end it."
        ),
        advice=(
            f"{found.advice.partition(' More workers')[0]} Or use a parser in place of the "
            "pattern; an atomic group (?>...) or a possessive repeat *+ (Python 3.11) never tries "
            "again. Where texts come from outside, match them in a process that can be ended at a "
            "time limit. More workers, another chunksize or a longer timeout do not help."
        ),
    )


_COSTS_OF_COPIES = frozenset(("page-fault-cost", "bottleneck-process"))
"""Rules about memory that is given anew, and about items that take ever longer: numbers and arrays
that are changed in place cost neither."""


def _past_cache(index: Index, place: str) -> Mark | None:
    """The one call of the function at a place that passes over the cache for its results."""
    line = line_at(index, place)
    found = [
        mark
        for mark in (marks(index, "past-cache") if line is not None else ())
        if line is not None
        and (mark.file, mark.about.partition(", ")[0]) == (line.file, line.function)
    ]
    return found[0] if len(found) == 1 else None


def with_copies(index: Index, finding: Finding) -> Finding:
    """A finding about a line that takes time, with what it copies or goes through each time.

    Or with the call of its function that passes over the cache for the results.
    """
    for place in dict.fromkeys(_places((finding.summary,))):
        if (past := _past_cache(index, place)) is not None:
            name, _, cached = past.about.partition(", ")
            return replace(
                finding,
                summary=(
                    f"{finding.summary}, called past the cache of {cached}() by {past.function}()"
                ),
                cause=(
                    f"{mark_words(past)} calls {name}() itself and computes its result anew each "
                    f"time, while {cached}() keeps the results for arguments that were there "
                    f"before. {finding.cause}"
                ),
                advice=(
                    f"Call {cached}() in place of {name}() at {mark_place(past)} where the same "
                    f"arguments come again. {finding.advice}"
                ),
            )
        slow = costly(index, place)
        if slow is not None and slow.words not in finding.summary:
            return replace(
                finding,
                summary=f"{finding.summary}: {slow.words}",
                cause=f"At that line, {slow.words}{slow.cause} {finding.cause}",
                advice=f"{slow.advice} {finding.advice}",
            )
        found = copying(index, place)
        if found is None or not (found.is_sure or finding.rule in _COSTS_OF_COPIES):
            continue
        return replace(
            finding,
            summary=f"{finding.summary}: {found.words}",
            cause=(
                f"{'' if found.is_sure else 'Likely: '}{found.words}. The longer that is, the "
                "longer takes each part that is added, and all of them together take a time like "
                f"the square of their number. {finding.cause}"
            ),
            advice=f"{found.advice} {finding.advice}",
        )
    return finding


def quotes_for(index: Index, finding: Finding) -> tuple[str, ...]:
    """The source of the program's own lines that a finding names, as lines of its evidence."""
    if not index.snapshot.source:
        return ()
    texts = (finding.summary, *finding.evidence, finding.cause, finding.advice)
    known = _by_place(index)
    lines = (known.get(place) for place in dict.fromkeys(_places(texts)))
    quotes = (_quote(line) for line in lines if line is not None)
    return tuple(dict.fromkeys(quotes))[:QUOTES]


def lines_named(index: Index, text: str) -> list[SourceLine]:
    """The program's own lines that a text names, as far as their source is known."""
    found = (line_at(index, place) for place in dict.fromkeys(_places((text,))))
    return [line for line in found if line is not None]


def _places(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for match in _PLACE.finditer(text):
            if match[3] != "<module>":
                yield match[0]


def _quote(line: SourceLine) -> str:
    """The statement at a line, with the condition before it or the loop around it."""
    name = line.file.rpartition("/")[2]
    text = f"{name}:{line.statement.line} is `{line.statement.text}`"
    if line.after:
        text += f", after `{line.after[-1].text}` in line {line.after[-1].line}"
    elif line.within:
        text += f", in `{line.within[-1].text}` of line {line.within[-1].line}"
    return text
