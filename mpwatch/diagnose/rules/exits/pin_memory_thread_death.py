"""The pin-memory thread has exited while main waits for a batch from it."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called_if_known, counted, loader_owners
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.waits import PIN_THREAD

RULE = "pin-memory-thread-death"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where the hook reported its error, or main waits and no such thread runs."""
    seen = set()
    for entry in tagged(index.snapshot, RULE):
        seen.add(entry.process)
        process = index.snapshot.get(entry.process)
        yield _finding(process, evidence_of(entry), "Fix the error above.")
    for owner, _ in loader_owners(index):
        if owner.process not in seen and _waits_for_pinned(owner) and not _has_pin_thread(owner):
            waited = quiet_s(owner, index)
            since = "" if waited is None else f" for {index.lasting(waited)}"
            yield _finding(
                owner,
                (
                    f"main waits in queue.Queue.get, called by the DataLoader{since}",
                    f"no pin-memory thread among its {counted(len(owner.threads), 'thread')}",
                ),
                "Read the thread's traceback on standard error, above main's message.",
            )


def _waits_for_pinned(owner: Process) -> bool:
    """Whether main waits on the in-process queue that only the pin-memory thread fills."""
    thread = main_thread(owner)
    if thread is None:
        return False
    frames = own_frames(thread.stack)
    return calls(frames, "threading.py:wait", "queue.py:get", "dataloader.py:_try_get_data")


def _has_pin_thread(owner: Process) -> bool:
    """Whether a thread has the name or the stack of a pin-memory thread."""
    names = [thread.name for thread in owner.sample.threads or ()]
    names += [thread.name for thread in owner.threads]
    if any(name.startswith(PIN_THREAD) or "pin_memory" in name for name in names):
        return True
    return any(calls(t.stack, "pin_memory.py:_pin_memory_loop") for t in owner.threads)


def _finding(process: Process | None, evidence: tuple[str, ...], fix: str) -> Finding:
    """Describe the missing thread."""
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process if process is not None else None,
        summary=f"the pin-memory thread of {called_if_known(process)} has exited",
        evidence=evidence,
        cause=(
            "This thread unpickles batches outside its error handling. An error there ends the "
            "thread, and its traceback goes to standard error only. Main notices within 5 s that "
            "the thread has exited, but does not report the reason."
        ),
        advice=(
            f"{fix} With pin_memory=False the error is raised in main with its full traceback; "
            "transfers to the GPU are then slower."
        ),
    )
