"""Spawned children run the top-level code of the main program again."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import age_s, called, family_head
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import innermost, main_thread, outermost_first
from mpwatch.diagnose.known_errors import reported
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import Statement

RULE = "no-main-guard"
SETTLED_S = 10.0
"""Importing a main program with torch takes two or three seconds, more on a busy machine."""
_CAUSE = (
    "Spawn and forkserver import the main program in each child. Code at its top level that is not "
    'below `if __name__ == "__main__":` runs there again. multiprocessing refuses to start '
    "processes from it."
)
_ADVICE = (
    'Put everything but imports and definitions below `if __name__ == "__main__":`. Tests can then '
    "import the program as well."
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each child that failed so, or has run the main program for long.

    A child that imports modules for the main program does what it should, and so does one of a
    program that has the guard, however long its imports and definitions take: where many children
    start at once, `torch.cuda.is_available()` alone took more than ten seconds on a GPU.
    """
    yield from reported(
        index.snapshot,
        RULE,
        summary="starts processes while it imports the main program: the main guard is missing",
        cause=_CAUSE,
        advice=_ADVICE,
    )
    for process in index.snapshot.processes:
        frame = _rerun_at(index.snapshot, process)
        if frame is not None and not _is_guarded(index, process):
            yield Finding(
                rule=RULE,
                severity=Severity.WARNING,
                process=process.process,
                summary=f"{called(process)} runs the main program again instead of its own task",
                evidence=(f"at {frame_words(frame)}, below spawn's import of the main module",),
                cause=_CAUSE,
                advice=_ADVICE,
            )


def _is_telling(snapshot: Snapshot, process: Process) -> bool:
    """Whether a child is old enough that this is no start, or has failed."""
    if process.ended is not None:
        return death_of(process.ended) == "failed"
    age = age_s(snapshot, process)
    return age is not None and age >= SETTLED_S


def _rerun_at(snapshot: Snapshot, process: Process) -> Frame | None:
    """The top-level line of the main program that a child runs, if it has run it for too long."""
    thread = main_thread(process)
    if thread is None or not _is_telling(snapshot, process):
        return None
    frames = own_frames(thread.stack)
    fixup = innermost(frames, "spawn.py:_fixup_main_from_path")
    if fixup is None:
        return None
    inside = frames[: list(frames).index(fixup)]
    modules = [place for place, frame in enumerate(inside) if frame.function == "<module>"]
    if not modules or is_library(inside[modules[-1]]):
        return None
    is_importing = any(frame.function == "_find_and_load" for frame in inside[: modules[-1]])
    return None if is_importing else inside[modules[-1]]


def _is_guarded(index: Index, process: Process) -> bool:
    """Whether what started a child runs below the guard, as far as its source is known."""
    parent = family_head(index, process)
    frames = outermost_first(parent) if parent is not None else []
    top = next((frame for frame in frames if frame.function == "<module>"), None)
    line = source_of(index, top) if top is not None and not is_library(top) else None
    return line is not None and any(map(_is_guard, line.within))


def _is_guard(header: Statement) -> bool:
    """Whether a condition keeps children out; one that is true of something else too does not."""
    return "__main__" in header.text and " or " not in header.text
