"""Rounds of a loop over elements that each rank passes over by its own data.

Ranks that are at one line of such a loop may be there for different elements (experts, parameters,
shards), so that what they call together is not the same call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.distributed.flight_recorder import unfinished
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.source.branches import depends_on_data
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.origins import own_origin
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.values import by_value, whole_numbers
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import SourceLine, Statement

_FOR = re.compile(r"(?:async )?for (.+?) in (.+):")
_OF_DATA = re.compile(
    r"loader|dataset|\bdata\b|batch|sampler|epoch|steps?\b|stream|micro|iterations", re.IGNORECASE
)
"""In what a loop goes over of which each round is a step, with the same collectives."""
_BRANCHES = ("if ", "elif ", "else of if ")


class PassedOver(Struct, frozen=True):
    """A loop of whose elements a rank may have passed over others than the others have."""

    cause: str
    advice: str
    evidence: str = ""


class _Skipping(Struct, frozen=True):
    """A loop over elements around a line, and a condition by which a rank passes over some."""

    frame: Frame
    loop: Statement
    names: Sequence[str]
    """The variables of the loop."""
    condition: Statement
    origin: str
    """What the condition depends on, in words; empty where only its words show that it is data."""


def passed_over(index: Index, ranks: Sequence[Process]) -> PassedOver | None:
    """Why ranks that are all at one line may be there for different elements of a loop.

    `None` where the source shows no such condition, or where values or torch's recorder say that
    they are in the same round.
    """
    threads = [main_thread(rank) for rank in ranks]
    stacks = [program_frames(each.stack) if each is not None else [] for each in threads]
    places = {tuple((f.file, f.function, f.line) for f in stack) for stack in stacks}
    records = [record for rank in ranks if (record := unfinished(rank)) is not None]
    calls = {(e.group, e.operation, e.number, e.sizes, e.types) for e in records}
    if len(places) != 1 or (len(records) == len(ranks) and len(calls) == 1):
        return None
    for frame in stacks[0]:
        line = source_of(index, frame)
        for each in _skipping(index, frame, line) if line is not None else ():
            return _told(index, ranks, each)
    return None


def _skipping(index: Index, frame: Frame, line: SourceLine) -> Iterator[_Skipping]:
    """The loops of a function around a line of it whose elements it uses, innermost first."""
    loops = [each for each in line.within if _FOR.match(each.text)]
    inside = [each for each in line.within if each.text.startswith(_BRANCHES)]
    inside += [each for each in line.after if each.text.endswith("continue")]
    for number in reversed(range(len(loops))):
        header = loops[number]
        end = loops[number + 1].line if number + 1 < len(loops) else frame.line
        found = _FOR.match(header.text)
        names = re.findall(r"[A-Za-z_]\w*", found[1]) if found is not None else []
        uses = [n for n in names if re.search(rf"\b{re.escape(n)}\b", line.statement.text)]
        if found is None or _OF_DATA.search(found[2]) or not uses:
            continue
        for condition in inside:
            if not header.line < condition.line <= end:
                continue
            origin = own_origin(index, frame.file, condition)
            if origin or (origin is not None and depends_on_data(condition.text)):
                yield _Skipping(frame, header, names, condition, origin)


def _told(index: Index, ranks: Sequence[Process], found: _Skipping) -> PassedOver | None:
    known = [(name, whole_numbers(index, ranks, found.frame, name)) for name in found.names]
    read = [(name, values) for name, values in known if values]
    apart = [(n, v) for n, v in read if len({each.number for each in v}) > 1]
    if read and not apart:
        return None
    shown = f"{apart[0][0]} is {by_value(ranks, apart[0][1])}" if apart else ""
    place = frame_words(found.frame)
    by = f"depends on {found.origin}" if found.origin else "tests what each rank has of its own"
    lead = f"{shown}: they" if shown else "Most likely they" if found.origin else "Possible: they"
    return PassedOver(
        f"All are at {place}, in a round of `{found.loop.text}` of line {found.loop.line}, and "
        f"`{found.condition.text}` of line {found.condition.line} passes over elements: it {by}. "
        f"{lead} are there for different elements, so that what they call together does not "
        "match, as each has passed over others.",
        "Let all ranks go through the same elements and run each of them, on an empty or zero "
        "input and with the result times zero where a rank has nothing for it; or agree first "
        f"which are needed by any rank (all_reduce of a flag for each, with MAX) and let "
        f"`{found.condition.text}` test that. A longer timeout or a barrier in the loop does not "
        "help.",
        shown,
    )


def passed_over_in_forward(index: Index, ranks: Sequence[Process]) -> PassedOver | None:
    """That a forward pass of the program leaves out modules for which a rank has no data.

    For ranks that are in the backward pass, of which no stack shows where it is.
    """
    found = marks(index, "passes-over-module")
    if not found:
        return None
    first = found[0]
    condition, _, line = first.about.rpartition(" in line ")
    return PassedOver(
        f"Possible: {all_called(ranks)} run the backward pass of different parts of the model. "
        f"{mark_words(first)} is under `{condition}` in line {line}, so that each rank leaves "
        "out modules by its own data or numbers, and with them the collectives of their parameters "
        "(sharded or averaged), which the others call.",
        "Run each of these modules on all ranks in each step: on an empty or zero input where "
        "there is no data for it, with its result times zero added to the output, so that its "
        "parameters take part in the backward pass. A longer timeout does not help.",
    )
