"""Counts the files that the user of a job has made in a directory since the job began.

Each name is examined once, when it is first seen. A directory in which nothing was added or removed
is not listed: its modification time shows that.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from mpwatch.model.host import NewFiles
from mpwatch.model.sanitize import clean

LIST_S = 4.0
"""A directory that changes is listed at most this often."""
COST_LIMIT = 5000
PAUSE_S = 15.0
"""A listing that took t seconds of cpu is not repeated for `COST_LIMIT` times t, which is 0.02 % of
a cpu, nor for more than `PAUSE_S`: the first one examines every name."""
NAMES_LIMIT = 5000
"""A directory with more names is not counted."""

KindOf = Callable[[str], "str | None"]
"""The kind of a file by its name; `None` of files that are not counted."""


class _Known(NamedTuple):
    """A file of the job's user that was made since the job began."""

    kind: str
    size_bytes: int


class NewFilesReader:
    """Counts the new files of one directory, by kind."""

    def __init__(self, kind_of: KindOf, clock: Callable[[], float] = time.thread_time) -> None:
        """Prepare; nothing is read yet.

        Args:
            kind_of: Tells the kind of a file by its name.
            clock: CPU time in seconds.
        """
        self._kind_of = kind_of
        self._clock = clock
        self._folder = ""
        self._names: dict[str, _Known | None] = {}
        self._mtime_ns = -1
        self._listed_at_s = -math.inf
        self._cost_s = 0.0
        self._found: dict[str, NewFiles] | None = None

    def read(
        self, folder: str, shown: str, uid: int, since_wall_s: float, at_s: float
    ) -> dict[str, NewFiles] | None:
        """The new files by kind; a kind without files is missing.

        Args:
            folder: The directory, as this process reaches it.
            shown: Its path as the job names it.
            uid: The owner whose files count.
            since_wall_s: When the job began, seconds since 1970.
            at_s: CLOCK_MONOTONIC.

        Returns:
            The files; `None` if the directory cannot be read or has more than `NAMES_LIMIT` names.
        """
        if folder != self._folder:
            self._folder, self._names, self._mtime_ns = folder, {}, -1
            self._listed_at_s = -math.inf
        if at_s - self._listed_at_s < max(LIST_S, min(PAUSE_S, COST_LIMIT * self._cost_s)):
            return self._found
        before_s = self._clock()
        try:
            mtime_ns = os.stat(folder).st_mtime_ns
            if mtime_ns != self._mtime_ns:
                self._found = self._list(folder, shown, uid, since_wall_s)
            self._mtime_ns = mtime_ns
        except OSError:
            self._found = None
        self._listed_at_s, self._cost_s = at_s, self._clock() - before_s
        return self._found

    def _list(
        self, folder: str, shown: str, uid: int, since_wall_s: float
    ) -> dict[str, NewFiles] | None:
        """List the directory and examine the names that were not there before."""
        with os.scandir(folder) as listing:
            entries = list(islice(listing, NAMES_LIMIT + 1))
        if len(entries) > NAMES_LIMIT:
            self._names = {}
            return None
        before = self._names
        names = {
            entry.name: before[entry.name]
            if entry.name in before
            else self._examined(entry, uid, since_wall_s)
            for entry in entries
        }
        self._names = names
        found: dict[str, NewFiles] = {}
        for name, known in names.items():
            if known is not None:
                so_far = found.get(known.kind, NewFiles(0, 0, ""))
                found[known.kind] = NewFiles(
                    so_far.total + 1, so_far.size_bytes + known.size_bytes, name
                )
        return {
            kind: each._replace(example=clean(f"{shown}/{each.example}"))
            for kind, each in found.items()
        }

    def _examined(self, entry: os.DirEntry[str], uid: int, since_wall_s: float) -> _Known | None:
        """What a file is; `None` if it is not counted."""
        kind = self._kind_of(entry.name)
        if kind is None:
            return None
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            return None
        if stat.st_uid != uid or stat.st_ctime < since_wall_s:
            return None
        return _Known(kind, stat.st_blocks * 512)


def shm_kind(name: str) -> str | None:
    """`psm` for blocks of `multiprocessing.shared_memory`, `semaphore` for named semaphores."""
    if name.startswith("psm_"):
        return "psm"
    return "semaphore" if name.startswith("sem.") else None


def tmp_kind(name: str) -> str | None:
    """Any name counts as `tmp`, but for directories of this program's own hooks."""
    return None if name.startswith("mpwatch-") else "tmp"
