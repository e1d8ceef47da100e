"""Waits until a count of the program is 0, and the threads that go on to add to it meanwhile.

Readers that overlap keep a writer out for good, if they do not look whether one waits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from mpwatch.describe.frames import own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, own_threads
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark, Statement

_ABOUT = re.compile(
    r"(?P<count>.+), (?P<waiter>\w+), (?P<first>\d+)-(?P<last>\d+), (?P<names>[\w/]+)"
    r"; (?P<file>\S+):(?P<begin>\d+)-(?P<end>\d+) (?:async )?(?P<loop>\S+)"
)
"""What `Mark.about` says of "admits", of a loop of the program."""
_SAME_S = 0.5
"""A stack is taken within this time of the reading that shows the wait."""


class Admission(Struct, frozen=True):
    """A statement that adds to a count in each round of a loop, and what waits until that is 0."""

    mark: Mark
    counter: str
    waiter: str
    """The function that waits, in the file of the mark."""
    lines: tuple[int, int]
    """Those of its wait."""
    names: tuple[str, ...]
    """The functions that add, and those of the same class that call these."""
    loop_file: str
    """Its name without folders."""
    loop_lines: tuple[int, int]
    loop: str
    """The function that has the loop."""


@derived
def _admissions(index: Index) -> Sequence[Admission]:
    found = []
    for mark in marks(index, "admits"):
        about = _ABOUT.fullmatch(mark.about)
        if about is not None:
            numbers = [int(about[name]) for name in ("first", "last", "begin", "end")]
            found.append(
                Admission(
                    mark,
                    about["count"],
                    about["waiter"],
                    (numbers[0], numbers[1]),
                    tuple(about["names"].split("/")),
                    about["file"],
                    (numbers[2], numbers[3]),
                    about["loop"],
                )
            )
    return found


def awaited_counts(index: Index, thread: Thread) -> list[tuple[Admission, Frame]]:
    """The counts for whose being 0 a thread waits, each with its frame; one for each loop."""
    known = _admissions(index)
    own = own_frames(thread.stack) if known else ()
    is_old = (thread.stack_age_s or 0.0) > (thread.still_s or 0.0) + _SAME_S
    if is_old or not (calls(own, "threading.py:wait") or calls(own, "synchronize.py:wait")):
        return []
    frames = program_frames(thread.stack)[:1]
    return [
        (each, frame)
        for frame in frames
        for each in known
        if frame.file == each.mark.file
        and frame.function.rpartition(".")[2] == each.waiter
        and each.lines[0] <= frame.line <= each.lines[1]
    ]


class Entering(Struct, frozen=True):
    """A thread in a loop in each of whose rounds it adds to a count."""

    process: Process
    thread: Thread
    block: Statement | None
    """The header of the `with` block in which it has added to it; `None` if it shows none."""


def entering(index: Index, admission: Admission) -> list[Entering]:
    """The threads of the job that are in the loop of a statement which adds to a count."""
    first, last = admission.loop_lines
    calls = re.compile(rf"with .*\b(?:{'|'.join(map(re.escape, admission.names))})\(")
    found = []
    for process in index.snapshot.living():
        for thread in own_threads(index, process):
            frames = [
                frame
                for frame in program_frames(thread.stack)
                if frame.file.rpartition("/")[2] == admission.loop_file
                and frame.function.rpartition(".")[2] == admission.loop
                and first <= frame.line <= last
            ]
            if frames:
                lines = [source_of(index, frame) for frame in program_frames(thread.stack)]
                headers = [h for line in lines if line is not None for h in line.within]
                block = next((each for each in headers if calls.match(each.text)), None)
                found.append(Entering(process, thread, block))
    return found
