"""Processes that have ended because the block of shared memory which they attach to was removed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.model.events import WrittenError
from mpwatch.model.snapshot import Process, Segment


class LostBlock(Struct, frozen=True):
    """A traceback in the output of the job, of an attach to a block that has no name any more."""

    segment: Segment
    error: WrittenError
    process: Process | None
    """The process that has ended by it; `None` where it may be one of several."""

    @property
    def who(self) -> str:
        """The process, or a process of its script; empty if neither is known."""
        if self.process is not None:
            return called(self.process)
        script = self.error.script.rpartition("/")[2]
        return f"a process of {script}" if script else ""

    @property
    def place(self) -> str:
        """The line of the program that attaches: `frames.py:18 attach`; empty if unknown."""
        frames = self.error.raised.frames
        return next((frame_words(each) for each in frames if not is_library(each)), "")


@derived
def lost_blocks(index: Index) -> tuple[LostBlock, ...]:
    """The attaches that have failed as their block was removed, each once for its block.

    The name of the block stands in the message: `No such file or directory: '/psm_4ef540f1'`. It
    is a random one, so that a traceback of an earlier job in the same file is of another block.
    """
    return tuple(_lost(index))


def _lost(index: Index) -> Iterator[LostBlock]:
    for segment in index.snapshot.segments:
        name = segment.path.rpartition("/")[2].removesuffix(" (deleted)")
        if segment.kind != "psm" or segment.is_linked or not name:
            continue
        for error in index.snapshot.written:
            is_of = error.raised.type == "FileNotFoundError"
            if is_of and f"/{name}'" in error.raised.text:
                yield LostBlock(segment, error, _ended_by(index, error))
                break


def _ended_by(index: Index, error: WrittenError) -> Process | None:
    """The only process that has failed as Python does after a traceback, of the same script."""
    script = error.script.rpartition("/")[2]
    failed = [
        each
        for each in index.snapshot.processes
        if each.ended is not None and each.ended.exit_code == 1
    ]
    named = [each for each in failed if script and script in each.label.split()]
    found = named or failed
    return found[0] if len(found) == 1 else None
