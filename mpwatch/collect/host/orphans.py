"""Files of exited jobs on this machine: named torch segments without a holder, stale sockets.

A file is listed only if it provably belongs to no running process: a segment whose creator has
exited and which no process maps or has open, or a socket without a listener. For segments all
processes must be visible, because containers may share `/dev/shm` (`--ipc=host`). Where processes
may be hidden, by a pid namespace, by `hidepid` or by missing permissions, no segment is listed.
"""

from __future__ import annotations

import os
import re
import socket
import time
from dataclasses import dataclass
from typing import Literal

from mpwatch.collect.host.new_files import SHM
from mpwatch.collect.process import procfs
from mpwatch.hook import wire
from mpwatch.model.ids import SegmentId, SegmentUse, torch_creator
from mpwatch.model.sanitize import clean

INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the pid namespace that contains all others (PROC_PID_INIT_INO, linux/proc_ns.h)."""
QUIET_S = 60.0
"""A younger file may belong to a process that is just being started."""
_SOCKET = re.compile(rf"(\d+)-(\d+){re.escape(wire.SOCKET_SUFFIX)}$")


@dataclass(frozen=True, slots=True)
class Leftover:
    """One file that can be removed."""

    kind: Literal["segment", "socket"]
    path: str
    """Not cleaned, for removing it."""
    maker_pid: int
    size_bytes: int
    age_s: float

    @property
    def shown(self) -> str:
        """The path, safe to print."""
        return clean(self.path)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The files found, and why some may be missing."""

    files: tuple[Leftover, ...]
    problems: tuple[str, ...] = ()


def find_leftovers(
    proc: str = "/proc",
    shm: str = SHM,
    folders: tuple[str, ...] | None = None,
    initial_namespace: int = INITIAL_PID_NAMESPACE,
) -> Leftovers:
    """List the files of exited processes; nothing is removed.

    Args:
        proc: Path of procfs.
        shm: The folder of POSIX shared memory.
        folders: Runtime directories of hooks; this user's own if `None`.
        initial_namespace: Inode of the pid namespace in which all processes can be seen.
    """
    if folders is None:
        folders = wire.runtime_candidates(os.geteuid(), os.environ.get("XDG_RUNTIME_DIR"))
    segments, problems = _segments(proc, shm, initial_namespace)
    sockets = [found for folder in folders for found in _sockets(proc, folder)]
    return Leftovers((*segments, *sockets), problems)


def remove(leftover: Leftover) -> str | None:
    """Remove one file.

    Returns:
        `None`, or why it is still there.
    """
    try:
        os.unlink(leftover.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{leftover.shown}: {error.strerror}"
    return None


def _segments(
    proc: str, shm: str, initial_namespace: int
) -> tuple[list[Leftover], tuple[str, ...]]:
    orphans = [
        (entry, maker)
        for entry in _entries(shm)
        if (maker := torch_creator(entry.name)) is not None
        and not os.path.exists(f"{proc}/{maker}")
    ]
    if not orphans:
        return [], ()
    words = f"{len(orphans)} segments without a visible owner are left alone"
    if (hidden := _hidden_processes(proc, initial_namespace)) is not None:
        return [], (f"{words}: {hidden}",)
    inner = _inner_pids(proc)
    orphans = [(entry, maker) for entry, maker in orphans if maker not in inner]
    held, unreadable = _held_inodes(proc)
    if unreadable:
        return [], (f"{words}: {unreadable} processes of others may hold them (run it as root)",)
    found = []
    for entry, maker in orphans:
        stat = _stat(entry)
        if stat is None or stat.st_ino in held or time.time() - stat.st_ctime < QUIET_S:
            continue
        age_s = time.time() - stat.st_ctime
        found.append(Leftover("segment", entry.path, maker, stat.st_blocks * 512, age_s))
    return found, ()


def _sockets(proc: str, folder: str) -> list[Leftover]:
    found = []
    for entry in _entries(folder):
        match = _SOCKET.match(entry.name)
        stat = _stat(entry) if match else None
        if match is None or stat is None or stat.st_uid != os.geteuid():
            continue
        living = procfs.read_stat(proc, int(match[1]))
        is_gone = living is None or living.process.start_ticks != int(match[2])
        age_s = time.time() - stat.st_ctime
        # The process may be in another pid namespace and share this folder; one that has not
        # listened to its new socket yet refuses connections like one that has exited.
        if is_gone and age_s >= QUIET_S and not _is_listened_to(entry.path):
            found.append(Leftover("socket", entry.path, int(match[1]), 0, age_s))
    return found


def _hidden_processes(proc: str, initial_namespace: int) -> str | None:
    """Why there may be processes that cannot be seen, or None if all can."""
    try:
        namespace = os.stat(f"{proc}/self/ns/pid").st_ino
    except OSError as error:
        return f"the pid namespace cannot be read ({error.strerror})"
    if namespace != initial_namespace:
        return "processes outside this container may use them (run it on the host)"
    if not os.path.exists(f"{proc}/1"):
        return "processes of other users are hidden (run it as root)"
    return None


def _inner_pids(proc: str) -> set[int]:
    """Pids in nested pid namespaces: torch puts the pid of its own namespace into names."""
    found: set[int] = set()
    for pid in procfs.pids(proc):
        try:
            status = procfs.read(f"{proc}/{pid}/status", 1 << 16)
        except (OSError, *procfs.GONE):
            continue
        for line in status.splitlines():
            if line.startswith(b"NSpid:"):
                found.update(map(int, line.split()[1:]))
    return found


def _is_listened_to(path: str) -> bool:
    """Whether a process listens on a socket; only a refusal proves that none does."""
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    try:
        client.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return True
    finally:
        client.close()
    return True


def _held_inodes(proc: str) -> tuple[set[int], int]:
    """Inodes of torch segments that any process maps or has open, and how many are unreadable."""
    held: set[int] = set()
    unreadable = 0
    marker = b"/torch_"  # a container may have mounted the folder elsewhere
    for pid in procfs.pids(proc):
        try:
            maps = procfs.read(f"{proc}/{pid}/maps", 64 << 20)
            for line in maps.splitlines():
                if marker in line:
                    held.add(int(line.split()[4]))
            for fd in os.listdir(f"{proc}/{pid}/fd"):
                if os.readlink(f"{proc}/{pid}/fd/{fd}").rpartition("/")[2].startswith("torch_"):
                    held.add(os.stat(f"{proc}/{pid}/fd/{fd}").st_ino)
        except procfs.GONE:
            continue
        except OSError:
            unreadable += 1
    return held, unreadable


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return []


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


PLACE = "/dev/shm"
LOOKED_AT = 5000
"""Most names examined: a job near the limit of mappings has sixty thousand files."""
KEPT = 200


def left_segments(proc: str, pid: int) -> tuple[SegmentUse, ...] | None:
    """List named torch segments of exited creators, as a process of the job sees them.

    The names carry pids of the job's own namespace, so they are looked up in the procfs that the
    job itself has mounted. Whether a process elsewhere still maps a file is not visible here.

    Args:
        proc: Path of procfs.
        pid: A process of the job; its namespaces count.

    Returns:
        At most `KEPT` segments, or `None` if the folder cannot be read.
    """
    root = f"{proc}/{pid}/root"
    found: list[SegmentUse] = []
    living: dict[int, bool] = {}
    try:
        with os.scandir(f"{root}{PLACE}") as listing:
            for index, entry in enumerate(listing):
                if index >= LOOKED_AT or len(found) >= KEPT:
                    break
                maker = torch_creator(entry.name)
                if maker is None:
                    continue
                if maker not in living:
                    living[maker] = os.path.exists(f"{root}/proc/{maker}")
                use = None if living[maker] else _examined(entry, maker)
                if use is not None:
                    found.append(use)
    except OSError:
        return None
    return tuple(found)


def _examined(entry: os.DirEntry[str], maker: int) -> SegmentUse | None:
    """Size and age of one file; `None` if it has gone meanwhile."""
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return SegmentUse(
        segment=SegmentId(stat.st_dev, stat.st_ino),
        path=clean(f"{PLACE}/{entry.name}"),
        kind="torch-named",
        is_linked=True,
        creator_pid=maker,
        size_bytes=stat.st_size,
        allocated_bytes=stat.st_blocks * 512,
        changed_wall_s=stat.st_ctime,
    )
