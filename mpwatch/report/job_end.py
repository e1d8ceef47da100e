"""How a job came to its end, in facts: also where no known failure explains it."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.known_errors import place_of
from mpwatch.model.snapshot import LogEntry, Process, Snapshot

LAST_WORDS = 4
"""Exceptions told of a job: the last ones, each process's own once."""
WORDS_LIMIT = 200
"""Characters: an exception of a DataLoader repeats the whole traceback of its worker."""


def ended_badly(snapshot: Snapshot) -> tuple[Process, ...]:
    """The first process of a job that is over, and its children, if they did not end well.

    A job that goes on tells of its dead by findings alone.
    """
    root = snapshot.get(snapshot.root)
    if root is None or root.ended is None or root.ended.exit_code == 0:
        return ()
    return (root, *(p for p in snapshot.processes if p is not root and _is_bad(p)))


def last_words(snapshot: Snapshot) -> Iterator[tuple[LogEntry, str, str]]:
    """The last exceptions of a job that ended badly, each in words and with where it was raised."""
    if not ended_badly(snapshot):
        return
    latest: dict[tuple[object, object], LogEntry] = {}
    for entry in snapshot.log:
        if entry.kind in ("exception", "thread-died"):
            # The same error is heard at each wrapper it crosses on its way out.
            key = (entry.process, entry.details.get("type"))
            latest.pop(key, None)
            latest[key] = entry
    for entry in list(latest.values())[-LAST_WORDS:]:
        long = len(entry.words) > WORDS_LIMIT
        words = f"{entry.words[: WORDS_LIMIT - 1]}…" if long else entry.words
        yield entry, words, place_of(entry.details) or ""


def _is_bad(process: Process) -> bool:
    return process.ended is not None and process.ended.exit_code != 0
