"""Lines that do the same in each round, or go through all that earlier rounds have kept.

The source shows what no round changes (`mpwatch.collect.source.same_again`), and what only grows;
the account and the stacks, that the time is there, in that loop, and that it is left in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import line_at, stacks_at
from mpwatch.model.account import IMPORTS, NO_CORE, Activity, ThreadAccount
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import INNER, Again, AgainKind, Fixed, SourceLine

_DECODES = re.compile(r"(?:^|/)(?:(?:datasets|h5py|zarr|netCDF4|pyarrow)/|numpy/lib/_?npyio)")
"""Libraries that make a whole column or array of what is written as a subscript of their objects;
one of a dict or a list gives what is there."""


class Told(NamedTuple):
    """Why a line takes long, and what to do; as `Costly` of `mpwatch.diagnose.analysis.source`."""

    words: str
    cause: str
    advice: str


def told_again(index: Index, place: str) -> Told | None:
    """What the line at a place does again each time; `None` if that is not seen."""
    line = line_at(index, place)
    if line is None:
        return None
    if (walk := _walk_at(index, place, line)) is not None:
        return _of_walk(walk, line)
    for each in _of_statement(index, line):
        is_work = each.kind in _KINDS and _is_in_rounds(index, place, each)
        if is_work and _is_decoded(index, place, each) and _comes_back(index, place):
            return _of_same(each)
    return None


def sent_again(index: Index, place: str) -> Again | None:
    """The statement at a place that sends what is the same for each message or task."""
    line = line_at(index, place)
    if line is None:
        return None
    return next((each for each in _of_statement(index, line) if each.kind == "sends"), None)


def _of_statement(index: Index, line: SourceLine) -> Iterator[Again]:
    for each in index.snapshot.again:
        is_of = each.function == line.function or line.function in INNER
        if is_of and (each.file, each.statement) == (line.file, line.statement):
            yield each


def _is_in_rounds(index: Index, place: str, each: Again) -> bool:
    """Whether all stacks that are at a place now are in the loop, or the call from outside.

    A coroutine that waits is on none.
    """
    found = each.round
    if found is not None and found.is_async:
        return True
    return all(
        any(
            (frame.file, frame.function) == (found.file, found.function)
            and found.first <= frame.line <= found.last
            if found is not None
            else frame.function == each.outside
            for frame in own
        )
        for _, own in stacks_at(index, place)
    )


def _is_decoded(index: Index, place: str, each: Again) -> bool:
    """Whether a library makes what a subscript asks for, where that is what takes the time."""
    if not each.text.endswith("]"):
        return True
    stacks = [inner for inner, _ in stacks_at(index, place)]
    return bool(stacks) and all(any(_DECODES.search(e.file) for e in inner) for inner in stacks)


@derived
def _comes_back(index: Index, place: str) -> bool:
    """Whether a thread has left the statement at a place and has come to it again.

    A long call that is made once looks the same in one stack.
    """
    return any(
        _has_returned(index, thread, place)
        for account in index.snapshot.account.processes.values()
        for thread in account.uncounted
    )


def _has_returned(index: Index, thread: ThreadAccount, place: str) -> bool:
    """Whether a thread was elsewhere between two stretches of 5 s in which it was at a place."""
    line = line_at(index, place)
    here, elsewhere = [], []
    for bucket in thread.buckets:
        seen = [each for each in bucket.tally.seen if each != NO_CORE and each.what != IMPORTS]
        at = [each for each in seen if _is_at(index, each, line)]
        if at:
            here.append(bucket.number)
        if any((each.place or each.kind == "idle") and each not in at for each in seen):
            elsewhere.append(bucket.number)
    return bool(here) and any(here[0] < number < here[-1] for number in elsewhere)


def _is_at(index: Index, activity: Activity, line: SourceLine | None) -> bool:
    at = line_at(index, activity.place) if activity.place else None
    return at is not None and line is not None and _statement_of(at) == _statement_of(line)


def _statement_of(line: SourceLine) -> tuple[str, int]:
    return line.file, line.statement.line


# --- what is given again --------------------------------------------------------------------------

_KINDS: Mapping[AgainKind, tuple[str, str, str]] = {
    "builds": (
        "builds the same again each time",
        "builds the same anew",
        "Build it once and keep it: {where}. Where a round changes what it gets, let it take a "
        "copy. More workers or threads do the same work again.",
    ),
    "column": (
        "makes all of {whole} for one element of it",
        "makes all of it again",
        "Take the element first, before what it is a column of is made (data[i]['name'] in place "
        "of data['name'][i], array[i] in place of array[:][i]); or make the whole once, {where}.",
    ),
    "counts": (
        "adds up the sizes of all parameters again each time",
        "comes to the same number",
        "Compute the number once and keep it: {where}. Where layers are added later, compute it "
        "again there.",
    ),
    "reads": (
        "reads all of the same file again each time",
        "reads the same file again, unless something writes it meanwhile",
        "Read it once and keep what was read: {where}. If that is too large for the memory, use a "
        "form of which one part can be read (an .npy file with numpy.load(path, mmap_mode='r'), "
        "HDF5 in chunks, groups of rows of Parquet), with an index of the parts. Where a round "
        "changes what it gets, let it take a copy. More workers read the same again.",
    ),
}
"""What it does, what each round does by that, and the advice."""


def _of_same(each: Again) -> Told:
    does, again, advice = _KINDS[each.kind]
    whole = each.text.rpartition("[")[0]
    why = fixed_words(each.fixed)
    rounds = rounds_words(each)
    return Told(
        f"{each.text} {does.format(whole=whole)}",
        f": {f'{why}, so that ' if why else ''}{rounds} {again}.",
        advice.format(where=_where(each)),
    )


def fixed_words(fixed: Sequence[Fixed]) -> str:
    """Why names have the same value in each round: `PATH is set once, in line 3 of data.py`."""
    parts = []
    for each in fixed:
        file = each.file.rpartition("/")[2]
        match each.how:
            case "argument":
                parts.append(f"{each.name} comes with the call of the function that has the loop")
            case "attribute":
                made = f"where its object is made (line {each.line} of {file})"
                parts.append(f"{each.name} gets its value only {made}")
            case "global":
                parts.append(f"{each.name} is set once, in line {each.line} of {file}")
            case "variable" if each.line:
                parts.append(f"{each.name} is set before the loop, in line {each.line} of {file}")
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def rounds_words(each: Again) -> str:
    """``each round of `for row in rows:` (main.py:12)`` or `each call of __getitem__()`."""
    if each.round is None:
        return f"each call of {each.outside}()"
    found = each.round
    file = found.file.rpartition("/")[2]
    return f"each round of `{found.header.text}` ({file}:{found.first} {found.function})"


def _where(each: Again) -> str:
    """Where to move what is the same each time."""
    of_object = any(one.how == "attribute" for one in each.fixed)
    keeps = (
        "in an attribute of the object, which __init__() sets or, as each worker needs its own, "
        "the first use does (if self._kept is None: ...)"
    )
    if each.round is None:
        return keeps if of_object else "in a variable of the module, or by functools.cache"
    if not each.round.by:
        return f"before the loop of line {each.round.first}"
    if of_object:
        return keeps
    return (
        f"before the loop of line {each.round.first}, and pass it to {each.function}(), or by "
        "functools.cache on a function of what it is given"
    )


# --- what only grows ------------------------------------------------------------------------------


def _walk_at(index: Index, place: str, line: SourceLine) -> Again | None:
    """A walk over what only grows that a line is in, or all stacks that are at it now."""
    walks = [each for each in index.snapshot.again if each.kind == "walks"]
    if not walks:
        return None
    stacks = [own for _, own in stacks_at(index, place)]
    for each in walks:
        is_there = _has(each, Frame(line.function, line.file, line.line))
        is_above = bool(stacks) and all(any(_has(each, e) for e in own[1:]) for own in stacks)
        if (is_there or is_above) and _is_in_rounds(index, place, each):
            return each
    return None


def _has(walk: Again, frame: Frame) -> bool:
    is_of = frame.function == walk.function or frame.function in INNER
    return is_of and frame.file == walk.file and walk.statement.line <= frame.line <= walk.last


def _of_walk(walk: Again, line: SourceLine) -> Told:
    adds, file = walk.adds, walk.file.rpartition("/")[2]
    name = adds.name if adds is not None else walk.text
    is_here = (walk.file, walk.statement.line) == _statement_of(line)
    at = "" if is_here else f" at {file}:{walk.statement.line} {walk.function}"
    of = "" if name.rpartition(".")[2] == walk.text.rpartition(".")[2] else f", which is {name}"
    by = ""
    if adds is not None:
        place = f"{adds.file.rpartition('/')[2]}:{adds.statement.line} {adds.function}"
        by = f"`{adds.statement.text}` at {place} adds to {name} in the same rounds, and "
    return Told(
        f"all of {walk.text}{of}, is gone through{at} each time, and that only grows"
        if of
        else f"all of {walk.text} is gone through{at} each time, and that only grows",
        f": {by}nothing that is known of the program removes from it there. So {rounds_words(walk)}"
        " takes longer than the one before, and all together a time like the square of their "
        "number.",
        f"Go through what is new only (keep the number of elements that were seen, and begin "
        f"there), keep the result up to date with each element that is added to {name} (a sum, a "
        "set, a dict by key), or bound it (collections.deque(maxlen=...), or drop what is not "
        "needed again). More cores or workers do not keep it from getting slower.",
    )
