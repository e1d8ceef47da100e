"""How a job ended: exit status and last exceptions, also where no rule explains them."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.known_errors import place_of
from mpwatch.model.snapshot import LogEntry, Process, Snapshot

EXCEPTIONS_SHOWN = 4
"""The last exceptions of a job, of each process and type one."""
WORDS_LIMIT = 200
"""Characters: an exception of a DataLoader repeats the whole traceback of its worker."""


def failed_processes(snapshot: Snapshot) -> tuple[Process, ...]:
    """The root process of a job that has failed, then its other processes that have failed.

    Empty while the root process runs and after it has exited with 0: findings report children that
    fail in a running job.
    """
    root = snapshot.get(snapshot.root)
    if root is None or not _has_failed(root):
        return ()
    return (root, *(p for p in snapshot.processes if p is not root and _has_failed(p)))


def last_exceptions(snapshot: Snapshot) -> Iterator[tuple[LogEntry, str, str]]:
    """The last exceptions of a failed job: log entry, text, and the line that raised it."""
    if not failed_processes(snapshot):
        return
    latest: dict[tuple[object, object], LogEntry] = {}
    for entry in snapshot.log:
        if entry.kind in ("exception", "thread-died"):
            # One error is reported by each wrapper that it passes through.
            key = (entry.process, entry.details.get("type"))
            latest.pop(key, None)
            latest[key] = entry
    for entry in list(latest.values())[-EXCEPTIONS_SHOWN:]:
        is_long = len(entry.words) > WORDS_LIMIT
        words = f"{entry.words[: WORDS_LIMIT - 1]}…" if is_long else entry.words
        yield entry, words, place_of(entry.details) or ""


def _has_failed(process: Process) -> bool:
    """Whether it has ended, and not with exit code 0; an unknown exit status counts as failed."""
    return process.ended is not None and process.ended.exit_code != 0
