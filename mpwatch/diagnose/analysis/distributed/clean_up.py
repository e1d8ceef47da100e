"""Ranks that wait in clean-up, and hide an exception by that, while others are in the block.

A `finally` body and the end of a `with` statement run however their block was left. Python prints
the traceback of an exception that nothing catches only once they have ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, product

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.diagnose.analysis.distributed.ranks import OF_ALL, is_in_backward, returns_at_once
from mpwatch.diagnose.analysis.distributed.unfinished_loops import REPEATS_NOT
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.source.lines import are_of_one_function, is_in_loop, source_of
from mpwatch.diagnose.analysis.stack_patterns import collective_of, main_thread
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import CleanUp, SourceLine, Statement

WAYS = 2
"""Other ways out of a block that are told."""
_BRANCHES = ("if ", "elif ", "else of if ", "except", "case ")
_ENTRY = re.compile(r"/(?:click|typer|hydra|fire|absl|torch/distributed/elastic)/")
"""What a program calls its own main function through, once."""
_MAY_NOT_CALL = re.compile(r"\b(?:and|or|if|for|while|lambda|elif)\b|^.{96}")
"""In a statement that may leave out a call in it, or that is not quoted to its end."""
_OF_ALL_ALIKE = re.compile(r" in range\([\d_, ]+\):$")
"""A loop over a range of numbers that the source has."""
_OF_SOME = re.compile(r"group|mesh|\bpg\b", re.IGNORECASE)
"""In a call of a collective, that it may be one of some ranks: others pass it without them."""
_SHADOWS = "torch/distributed/algorithms/join.py"
"""The end of `with Join(...)` calls the collectives of the others by design (torch 2.13)."""


class HidingCleanUp(Struct, frozen=True):
    """That ranks are in the clean-up of a block in which all others still are."""

    cause: str
    advice: str
    is_by_exception: bool
    """Whether the source shows no other way to it."""


class _Place(Struct, frozen=True):
    """Where a rank is in a clean-up, and another one in the block before it."""

    clean_up: CleanUp
    at: Frame
    """Of the rank in the clean-up."""
    line: SourceLine
    inside: Frame
    """Of the other one, in the same function."""
    callers: Sequence[Frame]
    """The frames of the first from the outermost to that one, with those of libraries."""


def hiding_clean_up(
    index: Index, ranks: Sequence[Process], others: Sequence[Process], *, is_waiting: bool
) -> HidingCleanUp | None:
    """Why ranks are in clean-up while all others still are in its block, in the same round of it.

    Args:
        index: The snapshot.
        ranks: Those that may be in clean-up; all of them have to be.
        others: The others, each of which waits in a collective.
        is_waiting: Whether it is seen that no rank gets on. Else one of a loop may still be in the
            clean-up of the round before, and the others in the block of the next one.
    """
    found = []
    for rank, other in product(ranks, others):
        if (place := _place(index, rank, other)) is None:
            return None  # as for nearly all: of a thousand ranks there are many pairs
        found.append(place)
    if not found:
        return None
    place = found[0]
    is_one_round = not _is_repeated(index, place) or (
        is_waiting and all(_is_met_by_all(index, rank, place.at) for rank in ranks)
    )
    if len({(each.at.file, each.clean_up) for each in found}) > 1 or not is_one_round:
        return None
    ways: list[str] | None = []
    for rank in others:
        more = _other_ways(index, place, rank)
        ways = None if ways is None or more is None else ways + more
    return _told(ranks, others, place, ways)


def _place(index: Index, rank: Process, other: Process) -> _Place | None:
    """Where a rank is in a clean-up whose block another one is in; `None` if it is not."""
    frames = own_frames(_stack(rank))[::-1]
    mine, its = (program_frames(_stack(each))[::-1] for each in (rank, other))
    for own, there in zip(mine, its, strict=False):
        if not are_of_one_function(index, own, there):
            return None
        if own.line == there.line:
            continue
        line = source_of(index, own)
        number = frames.index(own)
        inner = frames[number + 1 :]
        for each in reversed(line.cleans_up if line is not None else ()):
            if each.first <= there.line <= each.last and (not each.is_exit or _exits(inner)):
                return (
                    None if line is None else _Place(each, own, line, there, frames[: number + 1])
                )
        return None
    return None


def _exits(frames: Sequence[Frame]) -> bool:
    """Whether the first of some frames is the end of a `with` statement."""
    name = frames[0].function.rpartition(".")[2] if frames else ""
    is_shadow = bool(frames) and frames[0].file.endswith(_SHADOWS)
    return name in ("__exit__", "__aexit__") and not is_shadow


def _is_repeated(index: Index, place: _Place) -> bool:
    """Whether the block may run several times, as far as its function and its callers show."""
    for frame, inner in pairwise((*place.callers, None)):
        if frame is None:
            continue
        if is_library(frame):
            is_once = frame.function in REPEATS_NOT or _ENTRY.search(f"/{frame.file}")
            if _began(place.callers, frame) and not is_once:
                return True
            continue
        line = source_of(index, frame)
        if line is None:
            return True
        first = place.clean_up.first if inner is None else frame.line + 1
        if is_in_loop([each for each in line.within if each.line < first]):
            return True
    return False


def _began(callers: Sequence[Frame], library: Frame) -> bool:
    """Whether a frame of the program has called one of a library."""
    return any(not is_library(each) for each in callers[: callers.index(library)])


def _is_met_by_all(index: Index, rank: Process, at: Frame) -> bool:
    """Whether a rank waits for all in a collective that each round of its clean-up has.

    Then none of them can be in another round of it.
    """
    if not _waits_for_all(index, rank, at):
        return False
    frames = program_frames(_stack(rank))
    lines = [source_of(index, each) for each in frames[: frames.index(at) + 1]]
    for number, line in enumerate(reversed(lines)):
        if line is None:
            return False
        last = line.cleans_up[-1].last if not number and line.cleans_up else 0
        inside = (*line.within, *line.after)
        if any(each.line > last and each.text.startswith(_BRANCHES) for each in inside):
            return False
    return True


def _waits_for_all(index: Index, rank: Process, at: Frame) -> bool:
    """Whether a rank is in a collective that no rank can pass before all are there.

    Only where functions of the program alone lead from a frame to the call.
    """
    own = own_frames(_stack(rank))
    name = (collective_of(own) or "").partition("_into")[0]
    is_of_all = name in OF_ALL or (not name and is_in_backward(rank))
    last = own.index(at)
    innermost = next((n for n in range(last) if not is_library(own[n])), last)
    is_direct = not any(map(is_library, own[innermost:last]))
    line = source_of(index, own[innermost])
    is_of_some = line is not None and _OF_SOME.search(line.statement.text) is not None
    return is_of_all and is_direct and not is_of_some and not returns_at_once(index, rank)


def _other_ways(index: Index, place: _Place, rank: Process) -> list[str] | None:
    """What else than an exception may lead past the line of a rank; `None` where it is not known.

    Args:
        index: The snapshot.
        place: Where another rank is in the clean-up, and this one in the block.
        rank: The one in the block.
    """
    if not _waits_for_all(index, rank, place.inside):
        return None
    frames = program_frames(_stack(rank))
    found = []
    for number, frame in enumerate(frames[: frames.index(place.inside) + 1][::-1]):
        line = source_of(index, frame)
        if line is None or _MAY_NOT_CALL.search(line.statement.text.removeprefix("if ")):
            return None
        first = 0 if number else place.clean_up.first
        around = [each for each in line.within if each.line >= first]
        loops = [each for each in around if is_in_loop((each,))]
        left = [each for each in line.after if each.line >= first]
        leaves = () if number else place.clean_up.leaves
        left += [e for e in leaves if (loops or e.line < frame.line) and e not in left]
        branches = [each for each in around if each.text.startswith(_BRANCHES)]
        if loops:
            left += [e for e in line.ends if e not in left]
            left += [e.condition for e in line.ends_around if e.header in loops]
        # As many rounds as all others have: it would have been in this one with them.
        uneven = [each for each in loops if not _OF_ALL_ALIKE.search(each.text)]
        found += [_way("the end of ", frame, each) for each in uneven]
        found += [_way("", frame, each) for each in left]
        found += [_way("not meeting ", frame, each) for each in branches]
    return found


def _way(how: str, frame: Frame, statement: Statement) -> str:
    return f"{how}`{statement.text}` ({frame_words(frame._replace(line=statement.line))})"


def _told(
    ranks: Sequence[Process], others: Sequence[Process], place: _Place, ways: list[str] | None
) -> HidingCleanUp:
    """What follows, in words."""
    clean_up, many = place.clean_up, len(ranks) > 1
    names, it = all_called(ranks), "they" if many else "it"
    where = frame_words(place.at)
    what = (
        f"the end of `{clean_up.header.text}` of line {clean_up.header.line}"
        if clean_up.is_exit
        else f"the `finally:` of line {clean_up.header.line}"
    )
    hidden = (
        "Python prints the traceback of an exception that nothing catches only once the clean-up "
        "has ended, which waits here, so that no log has it yet."
    )
    begin = (
        f"{names} {'are' if many else 'is'} in {what} ({where}), which runs however its block was "
        f"left, also by an exception; {all_called(others)} still "
        f"{'are' if len(others) > 1 else 'is'} in that block, at {frame_words(place.inside)}."
    )
    if ways is not None and not ways:
        why = (
            "As far as these lines show, nothing but an exception (sys.exit() is one) leads from "
            f"the block to its clean-up past that line, so most likely one was raised on {names} "
            f"alone. {hidden}"
        )
    else:
        by = f": by {' or '.join(dict.fromkeys(ways[:WAYS]))}" if ways else ""
        why = (
            f"Either an exception was raised in the block on {names} alone, or {it} "
            f"{'have' if many else 'has'} left it before the others{by}. {hidden}"
        )
    return HidingCleanUp(f"{begin} {why}", _advice(place, names), ways is not None and not ways)


def _advice(place: _Place, names: str) -> str:
    header, statement = place.clean_up.header, place.line.statement
    see = (
        f"To see an exception of {names}, print it before the clean-up: in an `except "
        "BaseException:` of the block with traceback.print_exc() and raise. "
    )
    if place.clean_up.is_exit:
        return (
            f"{see}Let the end of `{header.text}` wait for no other rank or process where it is "
            "given an exception, or let each rank leave the block only after all have agreed that "
            "none has failed. A longer timeout only delays the error."
        )
    return (
        f"{see}Wait for no other rank in a `finally:`: move `{statement.text}` of line "
        f"{statement.line} behind the block, where a rank comes only without an exception, and let "
        "one with an exception end, so that its launcher ends the others. A longer timeout only "
        "delays the error."
    )


def _stack(rank: Process) -> Sequence[Frame]:
    thread = main_thread(rank)
    return () if thread is None else thread.stack
