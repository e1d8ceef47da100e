"""A process that collects items until it has a whole batch, of which the last part never comes."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.mechanisms.cases import Case, Mechanism
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source_code import collecting_loop, source_of
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.diagnose.analysis.waits.providers import QUEUE_LOCK
from mpwatch.model.samples import READS, Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Statement

_NAMED = 4


def part_batch(case: Case) -> Mechanism | None:
    """The mechanism where a reader collects a batch, and who would send more waits as well.

    Those that send are other readers: what they wait for are the results of what was sent.
    """
    readers = list(_readers(case))
    for process, frame, header, size in readers:
        same = [
            each[0] for each in readers if (each[1].file, each[1].line) == (frame.file, frame.line)
        ]
        others = [each for each in _waiting(case) if each.process not in {s.process for s in same}]
        if not others:
            continue
        at = [
            f"{called(each)} at {frame_words(f)}" for each in others[:_NAMED] if (f := _frame(each))
        ]
        names = all_called(others)
        verb = "waits" if len(others) == 1 else "wait"
        return Mechanism(
            cause=(
                f"{called(process)} collects {size} items before it goes on (`{header.text}` of "
                f"line {header.line}), and gets no more: whoever would send the next ones waits "
                f"itself, to receive ({', '.join(at)}). Most likely what was sent is no multiple "
                f"of {size}, and the sender waits for all results of it before it sends more."
            ),
            advice=(
                "Let the sender mark the end of each part with an item that closes the batch, or "
                "let the reader go on with what it has after a short get(timeout=...), and send "
                "the results of a batch that is not full as well. More processes or larger queues "
                "do not help."
            ),
            headline=(
                f"{all_called(same)} {'waits' if len(same) == 1 else 'wait'} for more items of a "
                f"batch, and {names} {verb} to receive, likely the results of what was sent."
            ),
        )
    return None


def _frame(process: Process) -> Frame | None:
    thread = main_thread(process)
    return user_frame(thread.stack) if thread is not None else None


def _waiting(case: Case) -> list[Process]:
    """The processes of the job whose main thread waits to receive something."""
    ids = {
        (edge.waiter, edge.tid)
        for edge in case.waits.edges
        if edge.kind in READS or edge.what.startswith(QUEUE_LOCK)
    }
    return [
        each
        for each in case.index.snapshot.living()
        if each.role not in SERVICE_ROLES and (each.process, each.pid) in ids
    ]


def _readers(case: Case) -> Iterator[tuple[Process, Frame, Statement, str]]:
    """Those of them that collect items, each with its line, the loop and how many it collects."""
    for process in _waiting(case):
        frame = _frame(process)
        line = source_of(case.index, frame) if frame is not None else None
        found = collecting_loop(line)
        if frame is not None and found is not None:
            yield process, frame, *found
