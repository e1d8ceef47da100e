"""JoinableQueue.join waits for tasks that no consumer will report as done."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.describe.frames import at_frame, is_library, own_frames
from mpwatch.diagnose.analysis.idle_time import STUCK_S, are_stalled, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import ended_words
from mpwatch.diagnose.analysis.process_queries import called, children_started_by, counted
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, threads_calling, user_frame
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Skip

RULE = "joinablequeue-join-hangs"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each `JoinableQueue.join` while no child makes progress."""
    for process, thread in threads_calling(index, "queues.py:join"):
        frames = own_frames(thread.stack)
        if not calls(frames, "synchronize.py:wait", "queues.py:join"):
            continue
        quiet = quiet_s(process, index)
        children = list(children_started_by(index, process))
        living = [p for p in children if not p.is_gone and p.role != "resource-tracker"]
        if quiet is None or quiet < STUCK_S or not are_stalled(living, index):
            continue
        if any(_wakes_by_itself(consumer) for consumer in living):
            continue
        user = user_frame(frames)
        at = at_frame(user, ", at ")
        skipped = next(filter(None, (_skipped(index, each) for each in living)), None)
        gone = ended_words([each for each in children if each.ended], 3)
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=process.process,
            tid=thread.tid,
            summary=(
                f"{called(process)} joins a queue whose tasks no process works on"
                + (f": likely {skipped.words}" if skipped is not None else "")
            ),
            evidence=(
                f"in JoinableQueue.join for {index.lasting(quiet)}{at}",
                *gone,
                f"{counted(len(living), 'living child', 'living children')}, blocked or idle",
            ),
            cause=(
                "JoinableQueue.join() returns once task_done() was called for every item that was "
                "put. "
                + (
                    _cause_of_skip(skipped)
                    if skipped is not None
                    else "A consumer exited before it called it."
                    if gone
                    else "No consumer exited: one took an item and did not call it, for example "
                    "because of an exception, or items are left that no consumer takes."
                )
            ),
            advice=_ADVICE if skipped is None else _advice_of_skip(skipped),
        )


class _Skipped(Struct, frozen=True):
    """A way through the loop of a consumer that skips task_done()."""

    consumer: Process
    skip: Skip
    at: str
    """`runner.py:41`, where it takes an item."""

    @property
    def words(self) -> str:
        """What skips it: `continue`, a `return`, or an `except` block that goes on."""
        skip, file = self.skip, self.at.partition(":")[0]
        return (
            f"`{skip.leaves.text}` at {file}:{skip.leaves.line} skips `{skip.back.text}` of line "
            f"{skip.back.line}"
        )


def _skipped(index: Index, consumer: Process) -> _Skipped | None:
    """The way past task_done() in the functions that a consumer is in; `None` without one."""
    thread = main_thread(consumer)
    for frame in own_frames(thread.stack) if thread is not None else ():
        line = source_of(index, frame) if not is_library(frame) else None
        for skip in line.skips if line is not None else ():
            if not skip.by_error and ".task_done(" in skip.back.text:
                file = frame.file.rpartition("/")[2]
                return _Skipped(consumer, skip, f"{file}:{skip.taken.line}")
    return None


def _cause_of_skip(skipped: _Skipped) -> str:
    """That a consumer goes on to its next item without task_done()."""
    skip = skipped.skip
    under = f", under `{skip.under.text}` of line {skip.under.line}" if skip.under else ""
    return (
        f"{called(skipped.consumer)} takes items by `{skip.taken.text}` ({skipped.at}), and "
        f"{skipped.words}{under}: each item on that way stays counted as unfinished for ever, and "
        "the consumers live and wait for more."
    )


def _advice_of_skip(skipped: _Skipped) -> str:
    return (
        f"Call {skipped.skip.back.text} on each way through the loop at {skipped.at}: in a finally "
        "block around what is done with an item, which also covers an exception. Read the log of "
        "the consumers for the task that failed. More consumers or a restart of them do not help. "
        "This join will not return: restart the process."
    )


_ADVICE = (
    "Call task_done() in a finally block, and check the exit codes of the consumers instead of "
    "waiting for ever. This join will not return: restart the process."
)


def _wakes_by_itself(consumer: Process) -> bool:
    """Whether a process is in a timed sleep, which may be part of a task."""
    thread = main_thread(consumer)
    wait = thread.waits_on if thread is not None else None
    return wait is not None and wait.kind == "timer"
