"""Not even a lock can be made: semaphores are files in /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import WORK_ROLES, called
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text

RULE = "semlock-enospc"
PAGE_BYTES = 4096


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where making a lock failed, or would fail at this moment.

    A semaphore takes one page and one inode; with a page left it still works.
    """
    complaints = list(tagged(index.snapshot, RULE))
    for entry in complaints:
        process = index.snapshot.get(entry.process)
        yield _finding(process, (*evidence_of(entry), *_room(index.snapshot)))
    if complaints or not _is_exhausted(index.snapshot):
        return
    starting = [p for p in index.snapshot.living() if _makes_locks(p)]
    for process in starting:
        yield _finding(process, _room(index.snapshot))
    if not starting and not any(p.role in WORK_ROLES for p in index.snapshot.processes):
        # No workers yet: the next thing such a program does is to make queues for them. One whose
        # workers have died has made its queues.
        main = next((p for p in index.snapshot.living() if p.role == "main"), None)
        if main is not None:
            evidence = (*_room(index.snapshot), "a semaphore needs one page and one file")
            yield _finding(main, evidence, Severity.WARNING)


def _is_exhausted(snapshot: Snapshot) -> bool:
    """Whether there is no room for a single page or file."""
    shm = snapshot.host.shm
    if shm is None or not shm.total_bytes:
        return False
    return shm.free_bytes < PAGE_BYTES or shm.free_inodes == 0


def _makes_locks(process: Process) -> bool:
    """Whether a thread is making a DataLoader, a queue or a lock right now."""
    return any(
        calls(own_frames(thread.stack), "queues.py:__init__")
        or calls(own_frames(thread.stack), "synchronize.py:__init__")
        for thread in process.threads
    )


def _room(snapshot: Snapshot) -> tuple[str, ...]:
    """What is left of /dev/shm."""
    shm = snapshot.host.shm
    if shm is None:
        return ()
    inodes = "" if shm.free_inodes is None else f" and {shm.free_inodes} files"
    return (f"{shm.path} has {bytes_text(shm.free_bytes)}{inodes} left",)


def _finding(
    process: Process | None,
    evidence: tuple[str, ...],
    severity: Severity = Severity.CRITICAL,
) -> Finding:
    """Put it into words."""
    who = called(process) if process is not None else "a process of the job"
    return Finding(
        rule=RULE,
        severity=severity,
        process=process.process if process is not None else None,
        summary=f"{who} cannot make a lock or queue: /dev/shm is full or not writable",
        evidence=evidence,
        cause=(
            "Locks, queues and events of multiprocessing are semaphores, small files in /dev/shm. "
            "When that is full or not writable, a DataLoader fails before any tensor is involved."
        ),
        advice=(
            "Make room: raise --shm-size, remove segments of dead jobs (mpwatch clean lists "
            "them, --yes removes them), keep fewer batches. If it says permission denied, mount "
            "/dev/shm writable for this user."
        ),
    )
