"""Programs that a job has started and that an exception has ended, by what they have written.

Their parent may have collected the exit status, so that only the traceback is left. One that begins
with the code of a module may also have been caught there and logged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from mpwatch.describe.frames import is_library, own_frames
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.model.events import WrittenError
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process

_MODULE = "<module>"
_IMPORTS = "<frozen importlib"


class GoneProgram(Struct, frozen=True):
    """A program of a job, by the file of its code, of which processes have failed."""

    name: str
    """`reader.py`."""
    errors: tuple[WrittenError, ...]
    """In the order of their reading, at least one."""
    processes: tuple[Process, ...]
    """Those that are known to be these; empty where that is not known."""


@derived
def gone_programs(index: Index) -> Sequence[GoneProgram]:
    """The programs that have ended by an exception, as far as no hook has told it.

    Not the program of the root process, which goes on.
    """
    root = index.snapshot.get(index.snapshot.root)
    if root is None or root.is_gone:
        return ()
    told = {
        (entry.details.get("type"), entry.details.get("text"))
        for entry in index.entries("exception")
    }
    by_script: defaultdict[str, list[WrittenError]] = defaultdict(list)
    for error in index.snapshot.written:
        is_other = error.process_name or error.thread_name or error.rank is not None
        is_told = (error.raised.type, error.raised.text) in told
        if error.script and error.is_of_job and not is_other and not is_told:
            by_script[error.script].append(error)
    found = []
    for script, errors in by_script.items():
        if is_library(Frame(_MODULE, script, 0)) or _runs(root, script):
            continue
        ended = [p for p in index.snapshot.processes if _has_failed(p) and _runs(p, script)]
        # With more tracebacks than ends, some of them were caught and logged.
        is_known = len(ended) >= len(errors) or (not ended and _unknown(index))
        known = errors if is_known else _uncaught(index, script, errors)
        if known:
            processes = tuple(ended) if len(ended) == len(known) else ()
            found.append(GoneProgram(script.rpartition("/")[2], tuple(known), processes))
    return tuple(found)


def _has_failed(process: Process) -> bool:
    return process.ended is not None and death_of(process.ended) == "failed"


def _unknown(index: Index) -> bool:
    """Whether a child that has failed and is not collected had ended before it was first read."""
    return any(
        each.sample.state == "Z" and not each.sample.cmdline and _has_failed(each)
        for each in index.snapshot.processes
    )


def _runs(process: Process, script: str) -> bool:
    """Whether the program of a process is a file, by its command line or its stack."""
    name = script.rpartition("/")[2]
    stacks = [thread.stack for thread in process.threads[:1]]
    return any(each.rpartition("/")[2] == name for each in process.sample.cmdline) or any(
        frame.function == _MODULE and frame.file == script for stack in stacks for frame in stack
    )


def _uncaught(index: Index, script: str, errors: Sequence[WrittenError]) -> list[WrittenError]:
    """Those that have ended a process, as far as no exit status is needed to tell that.

    A failed import is often logged. Where a living process runs the same program, the source has to
    show that the module catches nothing at that line.
    """
    living = [
        frame
        for process in index.snapshot.living()
        if _runs(process, script)
        for thread in process.threads[:1] or [None]
        for frame in (own_frames(thread.stack) if thread is not None else [None])
        if frame is None or frame.function == _MODULE
    ]
    return [
        error
        for error in errors
        if error.raised.type not in ("ImportError", "ModuleNotFoundError")
        and not any(frame.file.startswith(_IMPORTS) for frame in error.raised.frames)
        and all(_cannot_catch(index, frame, error) for frame in living)
    ]


def _cannot_catch(index: Index, frame: Frame | None, error: WrittenError) -> bool:
    """Whether the code of a module has no `try` around the line at which a traceback begins."""
    line = source_of(index, frame) if frame is not None else None
    at = [each.line for each in error.raised.frames if each.function == _MODULE]
    is_same = frame is not None and frame.line in at
    return line is not None and is_same and all("try" not in each.text for each in line.within)
