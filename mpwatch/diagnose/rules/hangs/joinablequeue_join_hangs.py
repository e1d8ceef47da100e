"""JoinableQueue.join waits for tasks that no consumer will report as done."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.idle_time import STUCK_S, are_stalled, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called, children_started_by, counted
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, threads_calling, user_frame
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text

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
        at = "" if user is None else f", at {frame_words(user)}"
        gone = [f"{called(p)} ended: {p.ended.words}" for p in children if p.ended][:3]
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=process.process,
            tid=thread.tid,
            summary=f"{called(process)} joins a queue whose tasks no process works on",
            evidence=(
                f"in JoinableQueue.join for {seconds_text(quiet)}{at}",
                *gone,
                f"{counted(len(living), 'living child', 'living children')}, blocked or idle",
            ),
            cause=(
                "JoinableQueue.join() returns once task_done() was called for every item that was "
                "put. "
                + (
                    "A consumer exited before it called it."
                    if gone
                    else "No consumer exited: one took an item and did not call it, for example "
                    "because of an exception, or items are left that no consumer takes."
                )
            ),
            advice=(
                "Call task_done() in a finally block, and check the exit codes of the consumers "
                "instead of waiting for ever. This join will not return: restart the process."
            ),
        )


def _wakes_by_itself(consumer: Process) -> bool:
    """Whether a process is in a timed sleep, which may be part of a task."""
    thread = main_thread(consumer)
    wait = thread.waits_on if thread is not None else None
    return wait is not None and wait.kind == "timer"
