"""The thread that pins batches is gone while main waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.loader_waits import PIN_THREAD
from mpwatch.diagnose.analysis.process_queries import called, loader_owners
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, own_frames
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

RULE = "pin-memory-thread-death"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding where the hook heard it die, or main waits for pinned batches without it."""
    seen = set()
    for entry in tagged(snapshot, RULE):
        seen.add(entry.process)
        yield _finding(snapshot.get(entry.process), evidence_of(entry))
    for owner, _ in loader_owners(snapshot):
        if owner.process not in seen and _waits_for_pinned(owner) and not _has_pin_thread(owner):
            waited = quiet_s(owner, history)
            since = "" if waited is None else f" for {seconds_text(waited)}"
            yield _finding(
                owner,
                (
                    f"main waits in queue.Queue.get below the DataLoader{since}",
                    f"it has {len(owner.threads)} threads and none of them pins memory",
                ),
            )


def _waits_for_pinned(owner: Process) -> bool:
    """Whether main waits on the queue inside its process that only a pin thread fills."""
    thread = main_thread(owner)
    if thread is None:
        return False
    frames = own_frames(thread.stack)
    return calls(frames, "threading.py:wait", "queue.py:get", "dataloader.py:_try_get_data")


def _has_pin_thread(owner: Process) -> bool:
    """Whether a thread is called, or does, what a pin thread is and does."""
    names = [thread.name for thread in owner.sample.threads or ()]
    names += [thread.name for thread in owner.threads]
    if any(name.startswith(PIN_THREAD) or "pin_memory" in name for name in names):
        return True
    return any(calls(t.stack, "pin_memory.py:_pin_memory_loop") for t in owner.threads)


def _finding(process: Process | None, evidence: tuple[str, ...]) -> Finding:
    """Put it into words."""
    who = called(process) if process is not None else "a process of the job"
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=process.process if process is not None else None,
        summary=f"the pin-memory thread of {who} has died",
        evidence=evidence,
        cause=(
            "Batches are unpickled in this thread outside of its error handling. Whatever goes "
            "wrong there (descriptors, mappings, a killed worker) ends the thread, and its "
            "traceback goes to standard error only. Main notices within 5 s, without the reason."
        ),
        advice=(
            "Read standard error above the message for the thread's own traceback, or the other "
            "findings here. pin_memory=False moves the error to main, where it is shown in full, "
            "and makes transfers to the GPU slower."
        ),
    )
