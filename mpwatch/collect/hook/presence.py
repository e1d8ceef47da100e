"""The parts of a hook in a process, by procfs: thread, mapped ring, listening socket.

The place of the hook's files was determined by the target's own `os.environ` when the hook was
attached. `/proc/PID/environ` may differ: a program can set XDG_RUNTIME_DIR itself, and
setproctitle(3) overwrites that memory. So only the descriptors and mappings in procfs decide.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat as modes
from dataclasses import dataclass

from mpwatch.hook import wire
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean

_LISTENS = 0x10000  # __SO_ACCEPTCON of /proc/net/unix, see proc(5)
_DELETED = " (deleted)"
_MEMORY_RING = "/memfd:mpwatch"


@dataclass(frozen=True, slots=True)
class Presence:
    """The parts of a hook that a process holds."""

    tids: tuple[int, ...] = ()
    """Threads with the hook's name."""
    ring: str = ""
    """Path of the mapped ring, as the process sees it."""
    socket: str = ""
    """Path of the listening socket, as the process sees it."""

    def __bool__(self) -> bool:
        return bool(self.tids or self.ring or self.socket)

    @property
    def folder(self) -> str:
        """The directory of the hook's files, as the process sees it; empty if unknown."""
        is_file = not self.ring.startswith(_MEMORY_RING)
        return os.path.dirname(self.socket or (self.ring if is_file else ""))

    @property
    def words(self) -> str:
        """The parts that were found, in words."""
        parts = []
        if self.tids:
            parts.append(f"its thread {', '.join(map(str, self.tids))}")
        if self.ring:
            parts.append(f"its mapping of {clean(self.ring)}")
        if self.socket:
            parts.append(f"its socket {clean(self.socket)}")
        return " and ".join(parts)


def find(sample: ProcSample, proc: str = "/proc") -> Presence:
    """Find all parts.

    Raises:
        OSError: The process has exited, or is hidden from this one.
    """
    pid = sample.process.pid
    return Presence(_threads(pid, proc), _ring(sample, proc), listening_socket(sample, proc))


def stem(sample: ProcSample) -> str:
    """Name of the hook's files without suffix; the pid in it is that of the process's namespace."""
    pid = sample.ns_pid if sample.ns_pid is not None else sample.process.pid
    return wire.stem(pid, sample.process.start_ticks)


def listening_socket(sample: ProcSample, proc: str = "/proc") -> str:
    """Path of the hook's listening socket, as the process sees it; empty if there is none.

    A listener that a forked child inherited has another name than the child's own.

    Raises:
        OSError: The process has exited, or its descriptors are hidden.
    """
    name = f"/{stem(sample)}{wire.SOCKET_SUFFIX}".encode()
    pid = sample.process.pid
    with open(f"{proc}/{pid}/net/unix", "rb") as file:
        table = file.read()
    if name not in table:
        return ""
    # Num RefCount Protocol Flags Type St Inode Path
    rows = (line.split(maxsplit=7) for line in table.splitlines() if line.endswith(name))
    found = {
        row[6]: os.fsdecode(row[7]) for row in rows if len(row) == 8 and int(row[3], 16) & _LISTENS
    }
    if not found:
        return ""
    for fd in os.listdir(f"{proc}/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"{proc}/{pid}/fd/{fd}")
            if target.startswith("socket:[") and target[8:-1].encode() in found:
                return found[target[8:-1].encode()]
    return ""


def remove_left_files(sample: ProcSample, folder: str, proc: str = "/proc") -> None:
    """Remove files that the hook could not remove itself, for example after a change of user.

    Only in a directory that belongs to root or to the process's user and is closed to others.
    """
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        fd = os.open(f"{proc}/{sample.process.pid}/root{folder}", flags)
        try:
            status = os.fstat(fd)
            if status.st_uid not in (0, sample.uid) or modes.S_IMODE(status.st_mode) & 0o077:
                return
            for suffix in (wire.SOCKET_SUFFIX, wire.RING_SUFFIX, wire.NOTES_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(stem(sample) + suffix, dir_fd=fd)
        finally:
            os.close(fd)


def _threads(pid: int, proc: str) -> tuple[int, ...]:
    found = []
    for name in os.listdir(f"{proc}/{pid}/task"):
        # The main thread of a child that the hook's thread forked has the name, too.
        try:
            with open(f"{proc}/{pid}/task/{name}/comm", "rb") as file:
                is_named = file.read().rstrip(b"\n") == wire.THREAD_NAME
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if is_named and int(name) != pid:
            found.append(int(name))
    return tuple(found)


def _ring(sample: ProcSample, proc: str) -> str:
    """Path of the ring it maps, from `/proc/PID/maps`; the kernel escapes only newlines there."""
    ring = re.compile(f".*/{stem(sample)}{re.escape(wire.RING_SUFFIX)}")
    with open(f"{proc}/{sample.process.pid}/maps", "rb") as file:
        for line in file:
            if b"mpwatch" not in line and wire.RING_SUFFIX.encode() not in line:
                continue
            fields = os.fsdecode(line.rstrip(b"\n")).split(maxsplit=5)
            path = fields[5].removesuffix(_DELETED) if len(fields) == 6 else ""
            if ring.fullmatch(path) or path.startswith(_MEMORY_RING):
                return path
    return ""
