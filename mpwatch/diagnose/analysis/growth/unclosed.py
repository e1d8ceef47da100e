"""Which statement opens the descriptors that a process does not close."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.newest import MOST, newest_kind, newest_links
from mpwatch.diagnose.analysis.shares import shares
from mpwatch.diagnose.analysis.source_code import marks
from mpwatch.model.samples import FdKind
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

_ABOUT = re.compile(
    r"(?P<kind>\w+) (?P<pattern>[^;]+); (?:(?P<calls>each call of .+)|(?P<loop>.+))"
)
_KINDS: Mapping[str, Sequence[FdKind]] = {
    "any": ("file", "pipe", "socket", "shm", "device", "event"),
    "event": ("event",),
    "file": ("file", "shm", "device"),
    "pipe": ("pipe",),
    "shm": ("shm", "file"),
}


class Unclosed(NamedTuple):
    """A statement that opens what is not closed."""

    mark: Mark
    where: str
    """`each call of save()`, or `each round of the loop at main.py:51-57 work`."""
    pattern: str
    """`ocr_*.npy`."""
    matching: int
    """So many of the newest descriptors have such a name; 0 where the source writes none out."""


def unclosed_by(index: Index, process: Process, gained: float) -> Unclosed | None:
    """The one statement that opens what the newest descriptors of a process are.

    Their names tell it, as far as the source writes them out. Otherwise the process has to be in
    the file of the statement, which a loop of the program has to repeat.
    """
    kind = newest_kind(process, gained)
    found = [
        each
        for mark in marks(index, "unclosed")
        if (each := _matching(index, process, gained, mark, kind)) is not None
    ]
    named = [each for each in found if each.matching]
    statements = {(each.mark.file, each.mark.statement) for each in named or found}
    return (named or found)[0] if len(statements) == 1 else None


def _matching(
    index: Index, process: Process, gained: float, mark: Mark, kind: FdKind | None
) -> Unclosed | None:
    about = _ABOUT.fullmatch(mark.about)
    if about is None or kind is None or kind not in _KINDS.get(about["kind"], ()):
        return None
    pattern = about["pattern"]
    where = about["calls"] or f"each round of the loop at {about['loop']}"
    if not pattern.strip("*"):
        is_here = about["loop"] is not None and mark.file in _files(index, process)
        return Unclosed(mark, where, pattern, 0) if is_here else None
    names = re.compile(".*".join(map(re.escape, pattern.split("*"))))
    links = newest_links(process, gained)
    paths = [each.target.removesuffix(" (deleted)") for each in links]
    matching = sum(names.fullmatch(each.rpartition("/")[2]) is not None for each in paths)
    return Unclosed(mark, where, pattern, matching) if matching >= MOST * len(links) else None


def _files(index: Index, process: Process) -> set[str]:
    """The files of the program that a process was seen in: its stacks, and lines of its account."""
    found = {frame.file for each in process.threads for frame in own_frames(each.stack)}
    names = {
        name for each in shares(index, process) if (name := each.activity.place.partition(":")[0])
    }
    return found | {m.file for m in index.snapshot.marks if m.file.rpartition("/")[2] in names}
