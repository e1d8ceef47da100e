"""Where processes that run the same program come apart, as its source shows.

Conditions on the rank, on data and on clocks, and loops that one of them has left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from mpwatch.describe.frames import is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.lines import (
    are_of_one_function,
    is_in_loop,
    mark_words,
    marks,
    source_of,
)
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Caught, Mark, SourceLine, Statement

_ON_RANK = re.compile(
    r"(?<![a-z])rank(?![a-z])|\bis_(main|master|first|chief|coordinator)\w*|\bis_(?:global_|local_)zero\b",
    re.IGNORECASE,
)


def is_on_rank(text: str) -> bool:
    """Whether a condition or a name is about the rank, as far as words show."""
    return _ON_RANK.search(text) is not None


_OF_ONE_SAMPLE = ("__call__", "__getitem__", "forward")
"""What is drawn in these changes a sample, and not how many of them there are."""


def uneven_draw(index: Index) -> Mark | None:
    """The statement that chooses by chance how many items there are, otherwise in each process.

    Only where one statement does so, and nothing that was read may seed the module `random`.
    """
    found = [each for each in marks(index, "draw") if each.function not in _OF_ONE_SAMPLE]
    return found[0] if len(found) == 1 and not marks(index, "seed") else None


class BatchRounds(Struct, frozen=True):
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


class Guard(Struct, frozen=True):
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
            if statement.text.startswith(_BRANCHES) and _ON_RANK.search(statement.text):
                return Guard(frame, statement, False)
    return None


class UnderRank(Struct, frozen=True):
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
    r"[<>]|\b(?:any|all|isnan|isinf|isfinite|numel|len)\(|loss|best|improv|converg|overflow|empty"
    r"|[\w)\]] [!=]= 0(?:\.0*)?(?![\w.])",
    re.IGNORECASE,
)
_SAME_FOR_ALL = re.compile(
    r"%|\b(?!return\b)(?:\w*(?:step|epoch|iter|batch|index|idx|round|turn)\w*|[ijkn])\b"
    r"|\b(?:args|opts?|cfg|conf|config|hparams|flags|environ)\b|\b(?:use|enable)_",
    re.IGNORECASE,
)
"""In a condition on a counter or a setting, which ranks that do the same rounds meet alike."""


def branch_of_one_side(
    index: Index, inside: Sequence[Frame], elsewhere: Sequence[Frame], *, by_return: bool = False
) -> Guard | None:
    """The condition on data under which one thread is where it is, and another is not.

    Both run the same functions down to one, in which they are at different lines. A condition on a
    counter or on the rank is none, nor one that both are under. One that no loop repeats need not
    be on data: it was met once, by one of them.

    Args:
        index: The snapshot.
        inside: Frames of the thread that has met the condition.
        elsewhere: Frames of the other one.
        by_return: Also a condition that is not on data, by which a function that only `inside` is
            in may return before its line.
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
    for depth, frame in reversed(list(enumerate(own[common - 1 :]))):
        line = source_of(index, frame)
        if line is None:
            return None
        for statements, leaves in ((line.within, False), (line.after, True)):
            for statement in reversed(statements):
                is_branch = leaves or statement.text.startswith(_BRANCHES)
                returns_early = by_return and leaves and depth > 0
                returns_early = returns_early and not _OF_SETUP.search(statement.text)
                is_own = _is_own(statement.text, is_once or returns_early)
                if is_branch and statement not in shared and is_own:
                    return Guard(frame, statement, leaves)
    return None


_OF_SETUP = re.compile(
    r"world|nprocs|replicas|\bsize\b|is_initialized|is_available|enabled|distributed|debug|verbose"
    r"|training|isinstance\(|hasattr\(|backend|device",
    re.IGNORECASE,
)
"""In a condition on how the job was set up, which all ranks meet alike."""


def graph_left(index: Index) -> Mark | None:
    """Where a forward pass returns a tensor made anew under a condition on what it is given."""
    cuts = marks(index, "cuts-graph")
    return next((each for each in cuts if _is_own(each.about, is_once=False)), None)


def _are_run_once(index: Index, frames: Sequence[Frame]) -> bool:
    """Whether none of these lines is in a loop, as far as their functions show."""
    lines = [source_of(index, frame) for frame in frames]
    return all(
        line is not None and not any(is_in_loop((each,)) for each in line.within) for line in lines
    )


def _is_own(condition: str, is_once: bool) -> bool:
    """Whether each rank may meet a condition differently."""
    if depends_on_data(condition):
        return True
    return is_once and not (_SAME_FOR_ALL.search(condition) or _ON_RANK.search(condition))


def depends_on_data(condition: str) -> bool:
    """Whether ranks that do the same rounds may meet a condition differently."""
    return (
        _ON_DATA.search(condition) is not None
        and _SAME_FOR_ALL.search(condition) is None
        and _ON_RANK.search(condition) is None
    )


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
    is_asked = any(each.about in named for each in marks(index, "asks-clock"))
    return is_asked or set_by_clock(index, condition) is not None


def set_by_clock(index: Index, condition: str) -> Mark | None:
    """The statement by which a clock has set an attribute that a condition tests."""
    named = {attribute for _, attribute in _ASKED.findall(condition) if attribute}
    return next((each for each in marks(index, "set-by-clock") if each.about in named), None)


_ASKED = re.compile(r"(\w+)\(|\.(\w+)\b(?!\()")
"""Functions, and attributes, which may be properties."""


def ends_by_clock(index: Index, frame: Frame) -> tuple[Statement, str] | None:
    """The loop around a frame that ends by a clock, and what tests it, as the program has it.

    The condition of a `while`, or of an `if` in the loop that leaves it. Each process has
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
    for end in line.ends_around if line is not None else ():
        if asks_the_time(index, end.condition.text):
            return end.header, end.condition.text
    return None


_LOOPS = ("while ", "for ", "async for ")


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


class RoundAhead(Struct, frozen=True):
    """A loop that two threads are in, where one of them has begun the next round.

    The other one is still in a loop of the round before.
    """

    around: Frame
    """The frame of the first that is in the loop of both."""
    header: Statement
    """That loop."""
    call: Frame
    """The frame of the first in the function in which they are at different lines."""
    inside: Frame
    """Of the other, in the loop that the first has left."""
    loop: Statement


def round_ahead(index: Index, first: Sequence[Frame], other: Sequence[Frame]) -> RoundAhead | None:
    """That a thread at an earlier line of a loop can only be there in a later round than another.

    For nothing that leads to its line may be passed over: no condition, no loop, no return before.
    So the other one has been there in the same round, if it is at a later line.
    """
    own, theirs = program_frames(first)[::-1], program_frames(other)[::-1]
    around: tuple[Frame, Statement] | None = None
    for number, (mine, its) in enumerate(zip(own, theirs, strict=False)):
        line, there = source_of(index, mine), source_of(index, its)
        if line is None or there is None or not are_of_one_function(index, mine, its):
            return None
        shared = [each for each in line.within if each in there.within]
        loops = [each for each in shared if each.text.startswith(_LOOP_HEADERS)]
        around = (mine, loops[-1]) if loops else around
        if mine.line == its.line:
            continue
        is_skipped = any(each.last < its.line for each in line.caught)
        if around is None or mine.line > its.line or len(shared) < len(line.within) or is_skipped:
            return None
        below = [source_of(index, each) for each in own[number + 1 :]]
        if any(each is None or each.within or each.after for each in below):
            return None
        for frame in theirs[number:]:
            deeper = source_of(index, frame)
            left = [] if deeper is None else _may_end_apart(deeper, shared)
            if left:
                return RoundAhead(*around, mine, frame, left[-1])
        return None
    return None


class CaughtBehind(Struct, frozen=True):
    """A `try` statement that one thread has left, and in whose block another one is."""

    caught: Caught
    inside: Frame
    """Of the one in the block, in the function that has it."""
    past: Frame
    """Of the other, in the same function."""
    loop: str
    """One in the block that may have ended earlier in place of an exception; empty for none."""
    has_branch: bool
    """Whether a condition that ranks may meet differently leads past the line in the block."""


def caught_behind(
    index: Index, inside: Sequence[Frame], ahead: Sequence[Frame]
) -> CaughtBehind | None:
    """The handler by which a thread may have left a block in which another one is.

    `None` where the line that it has come to is under a condition of its own, which may be for
    those without an exception, and where it has left a loop or a branch around the block as well.
    """
    theirs, own = program_frames(inside)[::-1], program_frames(ahead)[::-1]
    for number, (its, mine) in enumerate(zip(theirs, own, strict=False)):
        if not are_of_one_function(index, its, mine):
            return None
        if its.line == mine.line:
            continue
        line, there = source_of(index, its), source_of(index, mine)
        if line is None or there is None:
            return None
        for each in reversed(line.caught):
            between = [e for e in (*there.within, *there.after) if e.line > each.end]
            around = [e for e in line.within if e.line < each.first and e not in there.within]
            is_left = any(e.text.startswith((*_LOOP_HEADERS, *_BRANCHES)) for e in around)
            if mine.line > each.end and not between and not is_left:
                inner = theirs[number:]
                loop, has_branch = _ends_in(index, inner, each), _has_branch(index, inner, each)
                return CaughtBehind(each, its, mine, loop, has_branch)
        return None
    return None


def _has_branch(index: Index, frames: Sequence[Frame], caught: Caught) -> bool:
    """Whether some ranks may pass over the last of some frames from a `try` block, by an `if`."""
    for number, frame in enumerate(frames):
        line = source_of(index, frame)
        first = 0 if number else caught.first
        inside = [each for each in line.within if each.text.startswith(_BRANCHES)] if line else []
        inside += line.after if line else ()
        if any(e.line >= first and not _SAME_FOR_ALL.search(e.text) for e in inside):
            return True
    return False


def _ends_in(index: Index, frames: Sequence[Frame], caught: Caught) -> str:
    """The outermost loop between a `try` block and the last of some frames, in words."""
    for number, frame in enumerate(frames):
        line = source_of(index, frame)
        first = 0 if number else caught.first
        for each in line.within if line is not None else ():
            if each.line >= first and each.text.startswith(_LOOP_HEADERS):
                return f"the loop `{each.text}` of line {each.line} in {frame.function}()"
    return ""


def _may_end_apart(line: SourceLine, shared: Sequence[Statement]) -> list[Statement]:
    """The loops around a line, but for those of both threads and those over parts of a model."""
    loops = [each for each in line.within if each.text.startswith(_LOOP_HEADERS)]
    return [
        each
        for each in loops
        if each not in shared
        and (not _OVER_MODEL.search(each.text) or (line.ends and each == loops[-1]))
    ]


_OVER_MODEL = re.compile(
    r"^for .* in .*(?:layer|block|module|param|buffer|stage|children|expert|head|bucket)",
    re.IGNORECASE,
)
_BRANCHES = ("if ", "elif ", "else of if ")
_LOOP_HEADERS = ("for ", "async for ", "while ")


def _is_same(frame: Frame, other: Frame) -> bool:
    return (frame.file, frame.function) == (other.file, other.function)
