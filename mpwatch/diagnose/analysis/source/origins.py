"""Where the value comes from that decides at a condition, and what follows for its fix.

The source shows from what a value may come, and not what it was: only which rank went which way is
observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from mpwatch.describe.frames import own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import are_of_one_function, source_of
from mpwatch.diagnose.analysis.stack_patterns import collective_of, functions_of, main_thread
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import Origin, OriginKind, OriginStep, SourceLine, Statement

SHOWN: Final = 4
"""Statements of one chain."""


class _Kind(Struct, frozen=True):
    """A kind of origin in words."""

    what: str
    of_ranks: str = ""
    """How it differs between ranks, as a clause after that; empty where it need not."""
    advice: str = ""
    """What makes ranks decide alike."""


_LONGER = "A longer timeout, or a barrier before it, does not help."
_AGREE = (
    "Let all ranks decide alike: share the value before it is tested (all_reduce of a flag with "
    "MAX, or a broadcast of what one rank has decided), on all ranks and in every round. "
)
_KINDS: Final[Mapping[OriginKind, _Kind]] = {
    "unshared": _Kind(
        "a collective that is never called",
        "each rank goes on with what it has found or computed itself",
        "Give that parameter where the function is called, the process group of the ranks that "
        "have to agree, or take the condition away, so that the collective makes the value the "
        "same on all of them before it decides. " + _LONGER,
    ),
    "one-rank": _Kind(
        "a collective whose result only one rank gets",
        "the others go on with what they had",
        "Give its result to all ranks: all_reduce in place of reduce, all_gather in place of "
        "gather, or a broadcast after it, before any of them tests it. " + _LONGER,
    ),
    "signal": _Kind(
        "the handler of a signal",
        "it runs only in a process that gets the signal, at the moment when that one gets it",
        "A signal reaches each process by itself, so let all ranks learn of it before any of them "
        "acts: all_reduce the flag (with MAX) at the end of each step, on all ranks, and let all "
        "of them leave after the same one. " + _LONGER,
    ),
    "clock": _Kind(
        "a clock",
        "each rank reads its own, and has begun to count at a moment of its own",
        "Let one rank look at the clock and broadcast what it decides (or all_reduce the flag with "
        "MAX) in every round, or count steps in place of seconds. " + _LONGER,
    ),
    "hash": _Kind(
        "hash()",
        "for the same text it is another number in each interpreter, unless PYTHONHASHSEED is set "
        "or one is a fork of the other",
        "Choose by what is the same in each process: a place in a sorted list, or "
        "zlib.crc32(name.encode()). " + _LONGER,
    ),
    "set-order": _Kind(
        "the order of a set",
        "where its elements are texts it is another one in each interpreter, unless PYTHONHASHSEED "
        "is set or one is a fork of the other",
        "Go through sorted(...) of it, or through a list or dict that all ranks fill in the same "
        "order. " + _LONGER,
    ),
    "random": _Kind(
        "a random number",
        "each rank draws for itself, and nothing that was read seeds them alike",
        "Draw on one rank and broadcast what it has drawn before it is tested, or draw it from a "
        "generator that all ranks seed alike and that only this decision uses: "
        "random.Random(seed), torch.Generator().manual_seed(seed). What each rank draws for its "
        "own data may stay as it is. " + _LONGER,
    ),
    "exception": _Kind(
        "an exception",
        "it may have been raised on one rank alone",
        "Let all ranks learn that one has failed before any goes on: all_reduce a flag (with MAX) "
        "on every rank, also on those without an exception, and skip or repeat on all of them. "
        + _LONGER,
    ),
    "machine": _Kind(
        "the memory or load of the machine",
        "each rank reads it at a moment of its own, and its memory is its own",
        _AGREE + _LONGER,
    ),
    "file": _Kind(
        "which files there are",
        "each rank looks by itself, at a moment and perhaps in a folder of its own",
        "Let one rank look and broadcast what it has found (broadcast_object_list), and use that "
        "on all ranks. A barrier helps only where the files are written before it and no rank has "
        "a folder of its own; a longer timeout does not.",
    ),
    "queue": _Kind(
        "how many items a queue has",
        "each rank looks at a moment of its own",
        _AGREE + _LONGER,
    ),
    "limit": _Kind(
        "whether a time limit has passed",
        "that depends on how long each rank takes",
        _AGREE + _LONGER,
    ),
    "message": _Kind(
        "what another process sends",
        "each rank gets messages of its own, at a moment of its own",
        _AGREE + _LONGER,
    ),
    "rank": _Kind(
        "the number of the rank",
        "it is not the same for any two of them",
        "Set or compute that on all ranks alike, or share it from the rank that has it "
        "(broadcast) before the others test it; and leave under a condition on the rank only what "
        "one rank is to do alone, without a collective. " + _LONGER,
    ),
    "environment": _Kind(
        "a variable of the environment",
        "each process has its own",
        "Start all ranks with the same variables, or let one rank read it and broadcast. "
        + _LONGER,
    ),
    "flag": _Kind(
        "an event that another thread or process sets",
        "each rank looks at a moment of its own",
        _AGREE + _LONGER,
    ),
    "thread": _Kind(
        "what another thread of the process sets",
        "each rank tests it wherever its own thread is by then",
        "Let the condition be the same on all ranks: test what the calling thread itself sets "
        "before it starts the other one, or wait for that one (result(), join()) before the test; "
        "or do once, before the loop, what the condition is for. " + _LONGER,
    ),
    "data": _Kind(
        "data",
        "each rank has its own, and what it finds in them or how much there is may differ",
        _AGREE
        + "For loops: give all ranks the same number of rounds (pad or drop what is left over, "
        "drop_last). " + _LONGER,
    ),
    "counter": _Kind("a counter that is added to only under a condition"),
    "argument": _Kind("an argument or a setting"),
    "time-left": _Kind("what is left until a deadline"),
}
_ORDER: Final[Sequence[OriginKind]] = tuple(each for each, kind in _KINDS.items() if kind.of_ranks)
"""The kinds that differ between ranks, the most telling first."""


@derived
def _by_line(index: Index) -> Mapping[tuple[str, int], Sequence[Origin]]:
    found: dict[tuple[str, int], list[Origin]] = {}
    for each in index.snapshot.origins:
        found.setdefault((each.file, each.statement.line), []).append(each)
    return found


def origins_at(index: Index, file: str, line: int) -> Sequence[Origin]:
    """Where the values come from that decide at a statement, the nearest first."""
    return _by_line(index).get((file, line), ())


def origin_words(origin: Origin) -> str:
    """What a value comes from, after the words `depends on`.

    ``` `due = clock.due()` (train.py:38 step) <- `return time() > end` (clock.py:12 due) ```.
    """
    steps = origin.steps
    if len(steps) > SHOWN:
        steps = (*steps[:1], *steps[1 - SHOWN :])
    words = [f"`{each.statement.text}` ({_place(each)})" for each in steps]
    return " <- ".join(words) or f"`{origin.about}`"


def _base(file: str) -> str:
    return file.rpartition("/")[2]


def kind_words(kind: OriginKind) -> str:
    """`a clock`; empty where it is not known."""
    return _KINDS[kind].what if kind in _KINDS else ""


def _what(origin: Origin) -> str:
    """The same, with the signals: `the handler of a signal (SIGTERM)`, or a parameter."""
    what = kind_words(origin.kind)
    if origin.kind == "unshared" and origin.about:
        return f"{what}, as no call of the program gives `{origin.about}`"
    is_named = origin.kind == "signal" and origin.about.startswith("SIG")
    return f"{what} ({origin.about})" if is_named else what


def _of_ranks(origin: Origin) -> str:
    """How it differs between ranks, as a clause."""
    if origin.seeded is None:
        return _KINDS[origin.kind].of_ranks
    seed = f"`{origin.seeded.statement.text}` ({_place(origin.seeded)})"
    return f"each rank draws for itself, and {seed} seeds it otherwise on each of them"


def _place(step: OriginStep) -> str:
    return f"{_base(step.file)}:{step.statement.line} {step.function}"


class Parting(Struct, frozen=True):
    """The condition at which ranks have parted, as far as their stacks show, and why it differs."""

    cause: str
    advice: str
    origin: Origin
    statement: Statement
    """The condition."""
    is_sure: bool
    """Whether the stacks show that it has parted them."""

    def is_said(self, text: str) -> bool:
        """Whether a text names what the value comes from already."""
        last = self.origin.steps[-1].statement if self.origin.steps else None
        if last is None:
            return _KINDS[self.origin.kind].what.rpartition(" ")[2] in text
        file = _base(self.origin.steps[-1].file)
        return last.text in text or f"{file}:{last.line}" in text


class _Candidate(Struct, frozen=True):
    file: str
    function: str
    statement: Statement
    lead: str
    """What the condition has done to the ranks, as a clause about it."""


def parting(index: Index, one: Sequence[Frame], other: Sequence[Frame]) -> Parting | None:
    """Why two ranks are at different lines, of the condition at which they most likely parted.

    `None` where no condition is known to depend on what differs between ranks.

    Args:
        index: The snapshot.
        one: The stack of one of them.
        other: That of the other.
    """
    for each in _candidates(index, one, other):
        origin = _telling(origins_at(index, each.file, each.statement.line), each.statement)
        origin = origin or _on_a_thread(index, each)
        if origin is not None:
            kind = _KINDS[origin.kind]
            place = f"{_base(each.file)}:{each.statement.line} {each.function}"
            depends = "depends on" if origin.is_certain else "may depend on"
            return Parting(
                f"`{each.statement.text}` ({place}), {each.lead}, {depends} "
                f"{origin_words(origin)}: {_what(origin)}; {_of_ranks(origin)}.",
                kind.advice,
                origin,
                each.statement,
                each.lead != _LEAVING,
            )
    return None


def _telling(origins: Sequence[Origin], statement: Statement) -> Origin | None:
    """The origin of a condition that says most of why it differs between ranks."""
    known = {each.kind: each for each in origins if not each.names}
    for kind in _ORDER:
        origin = known.get(kind)
        if origin is None or (kind == "data" and "shared" in known):
            continue
        if not origin.steps and kind in ("data", "rank") and origin.about in statement.text:
            continue  # that a condition has the rank in it, or a loop the data, is seen
        return origin
    return None


def own_origin(index: Index, file: str, statement: Statement) -> str | None:
    """What a condition depends on that each rank has of its own, in words.

    Returns:
        `` `open(path)`: data ``; empty where no origin is known, and `None` where it is the same
        for all ranks, or the rank itself.
    """
    found = [each for each in origins_at(index, file, statement.line) if not each.names]
    kinds = {each.kind for each in found}
    if "shared" in kinds or "rank" in kinds:
        return None
    for kind in _ORDER:
        origin = next((each for each in found if each.kind == kind and each.is_certain), None)
        if origin is not None:
            return f"{origin_words(origin)}: {_what(origin)}"
    return None if kinds and kinds <= set(_ALIKE) else ""


def told_of(index: Index, file: str, statement: Statement) -> tuple[str, str] | None:
    """On what a condition depends at which ranks have parted, as a clause, and the fix for that.

    `None` where that is not known, or only that it is data; no fix where it only may depend on it.
    """
    origin = _telling(origins_at(index, file, statement.line), statement)
    if origin is None or origin.kind in ("data", "rank"):
        return None
    depends = "depends on" if origin.is_certain else "may depend on"
    return (
        f"it {depends} {origin_words(origin)}: {_what(origin)}; {_of_ranks(origin)}",
        _KINDS[origin.kind].advice if origin.is_certain else "",
    )


def _on_a_thread(index: Index, candidate: _Candidate) -> Origin | None:
    """An origin of which only is known that a thread beside the main one is in its function."""
    found = origins_at(index, candidate.file, candidate.statement.line)
    for each in found:
        last = each.steps[-1] if each.steps and not each.kind and not each.names else None
        if last is not None and (last.file, last.function) in _run_by_threads(index):
            return each._replace(kind="thread")
    return None


@derived
def _run_by_threads(index: Index) -> frozenset[tuple[str, str]]:
    """The functions of the program in which threads are, and no main thread."""
    mains: set[tuple[str, str]] = set()
    others: set[tuple[str, str]] = set()
    for process in index.snapshot.living():
        main = main_thread(process)
        for thread in process.threads:
            inside = mains if thread is main else others
            inside |= functions_of(program_frames(thread.stack))
    return frozenset(others - mains)


_BRANCHES = ("if ", "elif ", "else of ", "except", "case ")
_LOOPS = ("for ", "async for ", "while ")
_AT_BRANCH = "at which they part"
_OF_ROUNDS = "whose rounds one of them has ended"
_BY_END = "by which a rank leaves that loop"
_BY_END_AHEAD = "by which a rank leaves the loop that one of them still is in"
_ALONE = "under which one of them has come to its collective, most likely without the other"
_LEAVING = "by which a rank may have gone another way"


def _candidates(index: Index, one: Sequence[Frame], other: Sequence[Frame]) -> Iterator[_Candidate]:
    """The conditions between two ranks, those first at which they have parted for sure."""
    own, theirs = program_frames(one)[::-1], program_frames(other)[::-1]
    number = _first_apart(index, own, theirs)
    if number is None:
        return
    mine, its = source_of(index, own[number]), source_of(index, theirs[number])
    if mine is None or its is None:
        return
    sides = ((own, mine, its), (theirs, its, mine))
    for frames, line, beside in sides:
        yield from _around(frames[number], line, {each.line for each in beside.within})
    behind = own if own[number].line < theirs[number].line else theirs
    for frame in behind[number + 1 :]:
        deeper = source_of(index, frame)
        if deeper is not None:
            yield from _around(frame, deeper, set())
            yield from _named(frame, deeper.ends, _BY_END)
            yield from _named(frame, deeper.after, _LEAVING)
    ahead = one if behind is theirs else other
    if collective_of(own_frames(ahead)) is not None and _is_in_rounds(
        index, own[:number], mine, its
    ):
        for frame in program_frames(ahead)[::-1][number + 1 :]:
            deeper = source_of(index, frame)
            if deeper is not None:
                yield from _named(frame, _conditions(deeper), _ALONE)
                whiles = [each for each in deeper.within if each.text.startswith("while ")]
                yield from _named(frame, (*deeper.ends, *whiles), _BY_END_AHEAD)
    first, last = sorted((mine, its), key=lambda each: each.line)
    frame = own[number]
    between = [each for each in last.after if each not in first.after]
    yield from _named(frame, between, _LEAVING)
    loops = [each for each in first.within if each in last.within and _is_loop(each)]
    if loops:
        leaving = [
            each.statement
            for each in first.deciders
            if each.leaves and each.statement.line > loops[-1].line
        ]
        yield from _named(frame, (*first.ends, *last.ends, *leaving), _LEAVING)


def _first_apart(index: Index, own: Sequence[Frame], theirs: Sequence[Frame]) -> int | None:
    """The first function in which two threads are at different lines; `None` without one."""
    for number, (mine, its) in enumerate(zip(own, theirs, strict=False)):
        if not are_of_one_function(index, mine, its):
            return None
        if mine.line != its.line:
            return number
    return None


def _around(frame: Frame, line: SourceLine, others: set[int]) -> Iterator[_Candidate]:
    """The conditions and loops around a line that are not around the other one, outermost first."""
    for each in line.within:
        if each.line in others:
            continue
        if _is_loop(each):
            yield from _named(frame, [each], _OF_ROUNDS)
            yield from _named(frame, line.ends, _BY_END)
            for end in line.ends_around:
                if end.header == each:
                    yield from _named(frame, [end.condition], _BY_END)
        elif each.text.startswith(_BRANCHES):
            yield from _named(frame, [each], _AT_BRANCH)


def _is_in_rounds(
    index: Index, callers: Sequence[Frame], mine: SourceLine, its: SourceLine
) -> bool:
    """Whether two lines are repeated by one loop, of their function or of one that calls it."""
    if any(_is_loop(each) and each in its.within for each in mine.within):
        return True
    lines = [source_of(index, each) for each in callers]
    return any(_is_loop(each) for line in lines if line is not None for each in line.within)


def _conditions(line: SourceLine) -> Sequence[Statement]:
    """The conditions under which a line is reached, the innermost first."""
    within = [each for each in line.within if each.text.startswith(_BRANCHES)]
    return (*within[::-1], *line.after[::-1])


def _named(frame: Frame, statements: Sequence[Statement], lead: str) -> Iterator[_Candidate]:
    for each in statements:
        yield _Candidate(frame.file, frame.function, each, lead)


def _is_loop(statement: Statement) -> bool:
    return statement.text.startswith(_LOOPS)


def passed_words(index: Index, frame: Frame) -> str:
    """That the rank, tag or peer that a call passes may differ, as a sentence; empty if not known.

    Not where it is, or depends on, the number of the rank: that differs as it has to.
    """
    found = {each.kind: each for each in origins_at(index, frame.file, frame.line) if each.names}
    origin = next((found[kind] for kind in _ORDER if kind in found), None)
    if origin is None or origin.kind in ("rank", "data") or "shared" in found:
        return ""
    kind, name = _KINDS[origin.kind], origin.names[0]
    what = f"What the call passes{f' as {name}' if name else ''}"
    depends = "depends on" if origin.is_certain else "may depend on"
    return (
        f"{what} {depends} {origin_words(origin)}: {kind.what}; {_of_ranks(origin)}. Most likely "
        "the ranks pass different ones."
    )


_WEAK: Final = ("argument", "counter", "")
_ALIKE: Final = ("argument", "counter")


def wait_words(index: Index, file: str, statement: Statement) -> str:
    """On what a condition depends under which a wait ends, as a sentence; empty if not known.

    ``` `while not self.ok:` (load.py:60) depends on `self.ok = found` (load.py:41 run) ```.
    """
    found = [each for each in origins_at(index, file, statement.line) if not each.names]
    known = [each for each in found if each.kind not in ("shared", "unshared", "rank")]
    known.sort(key=lambda each: each.kind in _WEAK)
    # Where the condition itself shows what it depends on, a setting beside that tells nothing.
    known = [e for e in known[:1] if e.steps and (e.is_certain or e.kind not in _WEAK)]
    for origin in known:
        depends = "depends on" if origin.is_certain else "may depend on"
        kind = _what(origin)
        return (
            f"`{statement.text}` ({_base(file)}:{statement.line}) {depends} "
            f"{origin_words(origin)}{f': {kind}' if kind else ''}"
        )
    return ""
