"""A lock or queue cannot be created: its semaphores are files in /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import WORK_ROLES, called, called_if_known
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.diagnose.known_errors import evidence_of, gives, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from mpwatch.model.units import bytes_text

RULE = "semlock-enospc"
PAGE_BYTES = 4096


class _Failure(Struct, frozen=True):
    """One reason why a semaphore cannot be created."""

    reason: str
    cause: str
    advice: str


_FREE = (
    "Free space in /dev/shm: raise --shm-size of the container, remove segments of "
    "dead jobs (mpwatch clean lists them, --yes removes them), or keep fewer tensors in shared "
    "memory."
)
_FULL = _Failure(
    "/dev/shm is full",
    "There is no space for another page or file, so no DataLoader or queue can be created.",
    _FREE,
)
_WAS_FULL = _Failure(
    "/dev/shm had no space at that moment",
    "The kernel refused to create one with 'No space left on device'; there is space again now.",
    f"Find out what fills /dev/shm for a time (df /dev/shm while the job runs). {_FREE}",
)
_FORBIDDEN = _Failure(
    "permission denied in /dev/shm",
    "This user may not create files there.",
    "Mount /dev/shm writable for all users (mode 1777), or run the job as a user who may write "
    "there.",
)
_READ_ONLY = _Failure(
    "/dev/shm is mounted read-only",
    "The file system is read-only for this process.",
    "Mount /dev/shm read-write, for example as a tmpfs of the container.",
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where creating a lock failed, or would fail at this moment.

    A semaphore takes one page and one inode; with a page left it still works.
    """
    failed = list(tagged(index.snapshot, RULE))
    for entry in failed:
        yield _failed(index.snapshot, entry)
    if failed or not _is_exhausted(index.snapshot):
        return
    starting = [p for p in index.snapshot.living() if _makes_locks(p)]
    for process in starting:
        summary = f"{called(process)} cannot create a lock or queue: /dev/shm is full"
        yield _finding(process.process, summary, _free_words(index.snapshot), _FULL)
    if not starting and not any(p.role in WORK_ROLES for p in index.snapshot.processes):
        # No workers yet: the next thing such a program does is to create queues for them. A
        # program whose workers have died has created its queues.
        main = next((p for p in index.snapshot.living() if p.role == "main"), None)
        if main is not None:
            evidence = (*_free_words(index.snapshot), "a semaphore needs one page and one file")
            summary = f"{called(main)} cannot create a lock or queue now: /dev/shm is full"
            yield _finding(main.process, summary, evidence, _FULL, Severity.WARNING)


def _is_exhausted(snapshot: Snapshot) -> bool:
    """Whether there is no space for one more page or file."""
    shm = snapshot.host.shm
    if shm is None or not shm.total_bytes:
        return False
    return shm.free_bytes < PAGE_BYTES or shm.free_inodes == 0


def _makes_locks(process: Process) -> bool:
    """Whether a thread is creating a DataLoader, a queue or a lock."""
    return any(
        calls(own_frames(thread.stack), "queues.py:__init__")
        or calls(own_frames(thread.stack), "synchronize.py:__init__")
        for thread in process.threads
    )


def _free_words(snapshot: Snapshot) -> tuple[str, ...]:
    """The free space of /dev/shm."""
    shm = snapshot.host.shm
    if shm is None:
        return ()
    inodes = "" if shm.free_inodes is None else f" and {shm.free_inodes} files"
    return (f"{shm.path} has {bytes_text(shm.free_bytes)}{inodes} left",)


def _failed(snapshot: Snapshot, entry: LogEntry) -> Finding:
    """The finding for a reported error, by the reason that the error names."""
    process = snapshot.get(entry.process)
    name = called_if_known(process)
    if gives(entry, "not-permitted"):
        failure = _FORBIDDEN
    elif gives(entry, "read-only"):
        failure = _READ_ONLY
    else:
        failure = _FULL
        if snapshot.host.shm is not None and not _is_exhausted(snapshot):
            failure = _WAS_FULL
    summary = f"{name} cannot create a lock or queue: {failure.reason}"
    return _finding(entry.process, summary, (*evidence_of(entry), *_free_words(snapshot)), failure)


def _finding(
    process: ProcessId | None,
    summary: str,
    evidence: tuple[str, ...],
    failure: _Failure,
    severity: Severity = Severity.CRITICAL,
) -> Finding:
    return Finding(
        rule=RULE,
        severity=severity,
        process=process,
        summary=summary,
        evidence=evidence,
        cause=f"Locks, queues and events of multiprocessing are files in /dev/shm. {failure.cause}",
        advice=failure.advice,
    )
