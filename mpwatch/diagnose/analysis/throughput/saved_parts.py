"""Parts of tensors that are saved with the storage of the whole: where, and for whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import program_frames
from mpwatch.describe.waits import ROOM
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.lines import (
    line_at,
    lines_named,
    mark_place,
    mark_words,
    marks,
    places_named,
)
from mpwatch.diagnose.analysis.throughput.messages import is_receiving
from mpwatch.diagnose.analysis.throughput.shares import can_end_alone, shares
from mpwatch.model.findings import Finding
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

SENDS_SHARE = 0.3
"""Of the time of a process, in the function that sends what it has saved."""


class _SavedPart(Struct, frozen=True):
    """A part of a tensor that a function saves, with the storage of the whole."""

    saved: Mark
    """The line that saves."""
    given: Mark | None
    """The line that gives it the part, of another function; `None` where the same line does."""
    part: str
    """`feats[i]`."""
    whole: str
    """`feats`, or `tensor feats`, see `MarkKind`."""
    sender: Process | None = None
    """The process that sends it to the one of the finding; `None` where that saves it itself."""

    @property
    def text(self) -> str:
        """`feats[i]`, without where it is made."""
        return self.part.partition(": ")[2] if self.made else self.part

    @property
    def made(self) -> str:
        """Where a function that returns it makes it: `buffer.py:47 segment`; empty for none."""
        place, colon, _ = self.part.partition(": ")
        line = place.partition(" ")[0]
        if not colon or not line.rpartition(":")[2].isdecimal():
            return ""
        file = (self.given or self.saved).file.rpartition("/")[2]
        return place if ":" in line else f"{file}:{place}"


def _saved_part(index: Index, finding: Finding) -> _SavedPart | None:
    """The part of a tensor that is saved by the function at whose line time is spent.

    At the line that saves, or below it, where what was saved is compressed or sent. Or by one that
    sends to the process of the finding, and waits for it. What gives the part has to be a line that
    is seen to call that function.
    """
    named = [index.snapshot.get(each) for each in (finding.process, *finding.others) if each]
    own = [each for each in named if each is not None]
    for place in dict.fromkeys(places_named((finding.summary,))):
        if (found := _saved_at(index, finding, place, own)) is not None:
            return found
    receiver = index.snapshot.get(finding.process) if finding.process is not None else None
    if receiver is None or not is_receiving(index, receiver):
        return None
    for sender, place in _senders(index, receiver):
        if (found := _saved_at(index, finding, place, [sender])) is not None:
            return replace(found, sender=sender)
    return None


def _saved_at(
    index: Index, finding: Finding, place: str, processes: Sequence[Process]
) -> _SavedPart | None:
    """The part that is saved by the function of a place, at that line or above it."""
    line = line_at(index, place)
    if line is None:
        return None
    for mark in (*marks(index, "saves-part"), *marks(index, "saves")):
        is_here = (mark.file, mark.function) == (line.file, line.function)
        if not is_here or line.line < mark.statement.line:
            continue
        if mark.kind == "saves-part":
            part, _, whole = mark.about.rpartition(", ")
            return _SavedPart(mark, None, part, whole)
        if (given := _given_part(index, finding, mark, processes)) is not None:
            return given
    return None


def _given_part(
    index: Index, finding: Finding, saves: Mark, processes: Sequence[Process]
) -> _SavedPart | None:
    """The one line that calls the function of a mark with a part of a tensor."""
    stacks = [program_frames(thread.stack) for each in processes for thread in each.threads]
    calling = {(each.file, each.function) for stack in stacks for each in stack}
    lines = {each.statement for each in lines_named(index, " ".join(finding.evidence))}
    found = []
    for mark in marks(index, "passes-part"):
        name, place, rest = mark.about.split(", ", 2)
        whole, _, part = rest.partition(", ")
        is_seen = mark.statement in lines or (mark.file, mark.function) in calling
        if (name, place) == (saves.function, saves.about) and is_seen:
            found.append(_SavedPart(saves, mark, part, whole))
    return found[0] if len(found) == 1 else None


def _senders(index: Index, receiver: Process) -> Iterator[tuple[Process, str]]:
    """The processes that wait for room in a pipe that one process reads, and at which lines.

    Each with the last line of its function that it spends its time at.
    """
    for process in index.snapshot.living():
        lines: defaultdict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        sends: set[tuple[str, str]] = set()
        for each in shares(index, process):
            activity = each.activity
            where, _, function = activity.place.partition(" ")
            file, _, number = where.rpartition(":")
            if not number.isdecimal():
                continue
            at = lines[file, function]
            at[int(number)] = at.get(int(number), 0.0) + each.share
            is_room = activity.what.startswith(ROOM)
            if is_room and can_end_alone(index, receiver, activity.providers):
                sends.add((file, function))
        for file, function in sends:
            of_function = lines[file, function]
            if sum(of_function.values()) >= SENDS_SHARE:
                yield process, f"{file}:{max(of_function)} {function}"


def with_saved_parts(index: Index, finding: Finding) -> Finding:
    """A finding about a line that takes time, where that saves all of a tensor for a part of it."""
    found = _saved_part(index, finding)
    if found is None:
        return finding
    saved, part, whole = found.saved, found.text, found.whole.removeprefix("tensor ")
    given, made, sender = found.given, found.made, found.sender
    is_known = found.whole != whole
    made_words = f" (made at {made})" if made else ""
    given_words = (
        f"{mark_words(given)} gives {part}{made_words} to {saved.function}(), which saves it at "
        f"{mark_words(saved)}. "
        if given is not None
        else f"{mark_words(saved)} saves {part}{made_words}. "
    )
    view_words = (
        f"{whole} is a tensor, of which {part} is a view"
        if is_known
        else f"If {whole} is a tensor, {part} is a view of it"
    )
    read_words = (
        f" {called(sender)} sends that to {called(receiver)}, which reads it and loads it into "
        f"memory of its own for each {part}."
        if sender is not None
        and finding.process is not None
        and (receiver := index.snapshot.get(finding.process)) is not None
        else ""
    )
    at = (made or mark_place(given or saved)).rpartition(" ")[0]
    return replace(
        finding,
        summary=f"{finding.summary}: all of {whole} is saved for each {part}",
        is_doubtful=False,
        cause=(
            f"{given_words}{view_words}, and torch.save() and pickle write "
            f"the whole storage behind a view, not only what the view shows: each time all of "
            f"{whole} is serialised, and then compressed, copied or written.{read_words} The time "
            f"and what is saved are as many times too large as {whole} has such parts."
        ),
        advice=(
            f"Save a copy of the part: {part}.clone() at {at} (or .numpy().copy()), and so for "
            "other parts that are saved with it. .contiguous() "
            "and .detach() do not help, as their result has the same storage where the part is "
            "contiguous already. A lower level of compression, a faster disk or pipe, more "
            "processes or threads do not help either: as much is written."
        ),
    )
