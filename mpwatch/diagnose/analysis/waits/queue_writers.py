"""Which processes write to a queue, of all that have the writing end of its pipe."""

from __future__ import annotations

from collections.abc import Iterable

from mpwatch.describe.frames import program_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source_code import marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Thread


def writers_by_name(
    index: Index, reader: Thread, candidates: Iterable[ProcessId]
) -> list[ProcessId]:
    """Those that are in a function with a put() to a queue of the name that the reader uses.

    Forked processes inherit the ends of all pipes, and use few of them. `self._outbox` and `outbox`
    are one name; a function that puts may be defined inside of one that is on the stack.

    Returns:
        The candidates of which the source shows it; empty if it shows it of none.
    """
    frame = user_frame(reader.stack)
    line = source_of(index, frame) if frame is not None else None
    if frame is None or line is None:
        return []
    names = {
        _name(each.about)
        for each in marks(index, "takes")
        if each.file == frame.file and each.statement.line == line.statement.line
    }
    puts = [each for each in marks(index, "put") if _name(each.about) in names]
    return [
        process
        for process in candidates
        if any(
            _is_in(index, put.file, put.function, put.statement.line, each)
            for each in _frames_of(index, process)
            for put in puts
        )
    ]


def _name(queue: str) -> str:
    """The name of a queue without the object that has it."""
    return queue.rpartition(".")[2].strip("_")


def _frames_of(index: Index, identity: ProcessId) -> list[Frame]:
    process = index.snapshot.get(identity)
    thread = main_thread(process) if process is not None else None
    return list(program_frames(thread.stack)) if thread is not None else []


def _is_in(index: Index, file: str, function: str, at: int, frame: Frame) -> bool:
    """Whether a line belongs to the function of a frame, or to one defined in it."""
    if file != frame.file:
        return False
    line = source_of(index, frame)
    begins = line.defined if line is not None else 0
    return function == frame.function or 0 < begins <= at <= frame.line
