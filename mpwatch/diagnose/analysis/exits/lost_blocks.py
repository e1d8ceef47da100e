"""Processes that have ended because the block of shared memory which they attach to was removed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.diagnose.analysis.exits.kinds import raised_at
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.model.events import WrittenError
from mpwatch.model.snapshot import Process, Segment


class LostBlock(Struct, frozen=True):
    """A traceback in the output of the job, of an attach to a block that has no name any more."""

    segment: Segment
    error: WrittenError
    process: Process | None
    """The process that has ended by it; `None` where none is seen, or it may be one of several."""

    @property
    def place(self) -> str:
        """The line that attaches: `frames.py:18 attach`; empty if unknown."""
        raised = self.error.raised
        return raised_at(raised) if raised.frames else ""


@derived
def lost_blocks(index: Index) -> tuple[LostBlock, ...]:
    """The attaches that have failed as their block was removed, each once for its block.

    The name of the block stands in the message: `No such file or directory: '/psm_4ef540f1'`. It
    is a random one, so that a traceback of an earlier job in the same file is of another block. One
    that has ended a thread alone is left out.
    """
    return tuple(_lost(index))


def _lost(index: Index) -> Iterator[LostBlock]:
    for segment in index.snapshot.segments:
        name = segment.path.rpartition("/")[2].removesuffix(" (deleted)")
        if segment.kind != "psm" or segment.is_linked or not name:
            continue
        for error in index.snapshot.written:
            is_of = error.raised.type == "FileNotFoundError" and not error.thread_name
            if is_of and f"/{name}'" in error.raised.text:
                yield LostBlock(segment, error, _ended_by(index, error))
                break


def _ended_by(index: Index, error: WrittenError) -> Process | None:
    """The process that the traceback names, or the only one that may have written it.

    It has ended as Python does after a traceback, and writes to that file; its script is that of
    the traceback where this is known.
    """
    script = error.script.rpartition("/")[2]
    found = [
        each
        for each in index.snapshot.processes
        if each.ended is not None and each.ended.exit_code == 1
    ]
    if error.process is not None:
        return next((each for each in found if each.process == error.process), None)
    found = [
        each
        for each in found
        if each.process in error.writers and (not script or script in each.label.split())
    ]
    return found[0] if len(found) == 1 else None
