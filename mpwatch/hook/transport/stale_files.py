"""Removal of the files of dead processes.

The files of a process that was killed stay for the autopsy, for a bounded time and size. A program
may kill its workers every minute for a week, so a search is made when a hook is attached and also
after some forks. A search is made in steps, because a fork must not wait for it.
"""

from __future__ import annotations

from .. import wire
from . import runtime_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..safe.unpatched import System

KEEP_DEAD_S = 24 * 3600
"""How long the files of a dead process stay for `mpwatch autopsy`."""
KEEP_DEAD_BYTES = 64 << 20
"""Limit for the files of all dead processes together; the oldest are removed first."""
EVERY = 64
"""One fork in this many, and one spawned child in this many, begins a search."""
_AF_UNIX, _SOCK_STREAM = 1, 1
_SUFFIXES = (wire.SOCKET_SUFFIX, wire.RING_SUFFIX, wire.NOTES_SUFFIX)


class StaleFiles:
    """Searches for such files in the directory of this process."""

    __slots__ = ("_forks", "_steps", "_system", "directory")

    def __init__(self, system: System) -> None:
        self._system = system
        self.restart()

    def restart(self) -> None:
        """Reset in a forked child."""
        self.directory: str | None = None
        self._forks = 0
        self._steps: Iterator[None] | None = None

    def begin(self) -> None:
        """Begin a search on the thread if none is running."""
        if self._steps is None and self.directory is not None:
            self._steps = sweep(self._system, self.directory)

    def begin_as(self, started_by: str, pid: int) -> None:
        """Begin a search when the hook is attached; in one of `EVERY` spawned children."""
        if started_by in ("spawn", "forkserver"):
            if pid % EVERY == 0:
                self.begin()
        elif started_by != "fork":
            self.begin()

    def count_fork(self) -> None:
        """Begin a search after each `EVERY` forks."""
        self._forks += 1
        if self._forks % EVERY == 0:
            self.begin()

    def work(self, should_stop: Callable[[], bool]) -> None:
        """Continue a search, file by file, until it is complete or the thread has to end."""
        steps = self._steps
        if steps is None:
            return
        for _ in steps:
            if should_stop():
                return
        self._steps = None


def sweep(system: System, directory: str) -> Iterator[None]:
    """Remove files of dead processes: sockets at once, rings and notes once old or too large."""
    try:
        names = system.os.listdir(directory)
    except OSError:
        return
    kept: list[tuple[float, int, str]] = []
    for name in names:
        yield
        owner = _owner(name)
        if owner is None or runtime_dir.start_ticks(system, owner[0]) == owner[1]:
            continue
        path = f"{directory}/{name}"
        if name.endswith(wire.SOCKET_SUFFIX):
            _remove_unanswered(system, path)
            continue
        try:
            status = system.os.lstat(path)
        except OSError:
            continue
        kept.append((status.st_mtime, status.st_blocks * 512, path))
    total = 0
    oldest_s = system.time_ns() / 1e9 - KEEP_DEAD_S
    for changed_s, size, path in sorted(kept, reverse=True):
        yield
        total += size
        if changed_s < oldest_s or total > KEEP_DEAD_BYTES:
            _remove_unanswered(system, path)


def _remove_unanswered(system: System, path: str) -> None:
    """Unlink a file unless its process lives in another container that shares the directory."""
    if not _answers(system, path.rpartition(".")[0] + wire.SOCKET_SUFFIX):
        runtime_dir.remove(system, path)


def _owner(name: str) -> tuple[int, int] | None:
    """Pid and start ticks in the name of a file of the hook, or `None`."""
    stem, dot, suffix = name.partition(".")
    pid, dash, ticks = stem.partition("-")
    if dot + suffix not in _SUFFIXES or not dash or not (pid.isdigit() and ticks.isdigit()):
        return None
    return int(pid), int(ticks)


def _answers(system: System, path: str) -> bool:
    """Whether a process listens on a socket."""
    client: Any = system.socket(_AF_UNIX, _SOCK_STREAM)
    try:
        client.setblocking(False)
        client.connect(path)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        client.close()
    return True
