"""Files of exited jobs on this machine: named torch segments without a holder, files of hooks.

A file is listed only if it provably belongs to no running process:

- A segment whose creator has exited and which no process maps or has open.
- A socket, ring, notes or link of a hook whose process has exited, if no process listens on the
  socket; likewise the directory of an injection, or one that a killed mpwatch was making.

All processes must be visible, because containers may share `/dev/shm` (`--ipc=host`) or a runtime
directory. Where they may be hidden, by a pid namespace, by `hidepid` or by missing permissions,
only a socket is listed: if a connection is refused, no process listens on it. On a network file
system nothing is, for it may belong to a process of another machine.

Never listed are copies of the hook's package, from which a hook may still load modules, and the
segments of `multiprocessing.shared_memory` (`psm_*`): their names hold no pid, and a living process
may know one that no process has open now.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Container
from typing import Literal

from msgspec import Struct

from mpwatch.collect.hook.left_files import folders_of_user
from mpwatch.collect.host import frozen_disk
from mpwatch.collect.host.new_files import SHM, type_of
from mpwatch.collect.process import procfs
from mpwatch.hook import wire
from mpwatch.model.ids import SegmentId, SegmentUse, torch_creator
from mpwatch.model.sanitize import clean

INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the pid namespace that contains all others (PROC_PID_INIT_INO, linux/proc_ns.h)."""
QUIET_S = 60.0
"""A younger file may belong to a process that is just being started."""
_ELSEWHERE = "this file system is shared with other machines, whose processes may own them"
_SUFFIXES = "|".join(map(re.escape, wire.FILE_SUFFIXES))
_HOOK_FILE = re.compile(rf"(?P<pid>\d+)-(?P<ticks>\d+)(?P<suffix>{_SUFFIXES})")
_EXCHANGE = re.compile(r"attach-(?P<pid>\d+)-(?P<ticks>\d+)")
_HIDDEN = re.compile(r"\.(attach|hook)-.+\.(?P<pid>\d+)\.\d+\.\d+")
"""A directory that the mpwatch of this pid had not published yet, see `exchange_dir.publish`."""
Kind = Literal["segment", "socket", "ring", "notes", "link", "folder"]
_KINDS: dict[str, Kind] = {
    wire.SOCKET_SUFFIX: "socket",
    wire.RING_SUFFIX: "ring",
    wire.NOTES_SUFFIX: "notes",
    wire.CHECK_SUFFIX: "link",
}


class Leftover(Struct, frozen=True):
    """One file that can be removed, or a folder with its files."""

    kind: Kind
    path: str
    """Not cleaned, for removing it."""
    maker_pid: int
    size_bytes: int
    age_s: float

    @property
    def shown(self) -> str:
        """The path, safe to print."""
        return clean(self.path)


class Leftovers(Struct, frozen=True):
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
        folders = folders_of_user(os.geteuid(), os.environ.get("XDG_RUNTIME_DIR"))
    files, problems = _segments(proc, shm, initial_namespace)
    of_hooks = find_hook_files(folders, proc, initial_namespace)
    return Leftovers((*files, *of_hooks.files), problems + of_hooks.problems)


def find_hook_files(
    folders: tuple[str, ...], proc: str = "/proc", initial_namespace: int = INITIAL_PID_NAMESPACE
) -> Leftovers:
    """List what hooks of exited processes have left; arguments as `find_leftovers`."""
    files: list[Leftover] = []
    problems: tuple[str, ...] = ()
    hidden = _hidden_processes(proc, initial_namespace)
    for folder in folders:
        found, unproven = _hook_files(proc, folder, is_all_visible=hidden is None)
        files += found
        if unproven:
            words = f"files of hooks in {clean(folder)} are left alone ({unproven})"
            problems += (f"{words}: {hidden or _ELSEWHERE}",)
    return Leftovers(tuple(files), problems)


def remove(leftover: Leftover) -> str | None:
    """Remove one file, or a folder with its files.

    Returns:
        `None`, or why it is still there.
    """
    try:
        folder = os.open(os.path.dirname(leftover.path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if frozen_disk.blocks_writes(folder):
                return f"{leftover.shown}: {frozen_disk.SENTENCE}"
            if leftover.kind == "folder":
                shutil.rmtree(leftover.path)
            else:
                os.unlink(leftover.path)
        finally:
            os.close(folder)
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
    words = f"segments without a visible owner are left alone ({len(orphans)})"
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


def _hook_files(proc: str, folder: str, *, is_all_visible: bool) -> tuple[list[Leftover], int]:
    """What dead processes left in a runtime directory, and how much may be of living ones."""
    found, unproven = [], 0
    is_local = type_of(proc, "self", os.path.realpath(folder)) in procfs.LOCAL_TYPES
    inner = _inner_pids(proc)
    for entry in _entries(folder):
        status = _stat(entry)
        match = _matched(entry.name, status)
        if match is None or status is None or status.st_uid != os.geteuid():
            continue
        parts = match.groupdict()
        pid, ticks = int(parts["pid"]), parts.get("ticks")
        age_s = time.time() - status.st_ctime
        # The process may be in another pid namespace and share this folder; one that has not
        # listened to its new socket yet refuses connections like one that has exited.
        if age_s < QUIET_S or not _is_gone(proc, pid, ticks, inner):
            continue
        if ticks is not None and _is_listened_to(f"{folder}/{pid}-{ticks}{wire.SOCKET_SUFFIX}"):
            continue
        kind = _KINDS.get(parts.get("suffix", ""), "folder")
        if not is_local or not (is_all_visible or kind == "socket"):
            unproven += 1
            continue
        size_bytes = _size(entry.path) if kind == "folder" else status.st_blocks * 512
        found.append(Leftover(kind, entry.path, pid, size_bytes, age_s))
    return found, unproven


def _matched(name: str, found: os.stat_result | None) -> re.Match[str] | None:
    """The pid in a name of the hook or of an injection, if it is a file or a folder as that is."""
    if found is None:
        return None
    if stat.S_ISDIR(found.st_mode):
        return _EXCHANGE.fullmatch(name) or _HIDDEN.fullmatch(name)
    return _HOOK_FILE.fullmatch(name)


def _is_gone(proc: str, pid: int, start_ticks: str | None, inner: Container[int]) -> bool:
    """Whether no process has this pid, or another one has it now.

    A process in a nested pid namespace knows only its pid there. One in another time namespace
    counts its start ticks from elsewhere. Neither is compared by them.
    """
    living = procfs.read_stat(proc, pid)
    if living is not None:
        if start_ticks is None or living.process.start_ticks == int(start_ticks):
            return False
        try:
            if os.readlink(f"{proc}/{pid}/ns/time") != os.readlink(f"{proc}/self/ns/time"):
                return False
        except FileNotFoundError:  # a kernel without time namespaces, or it has just exited
            return True
        except OSError:
            return False
    return pid not in inner


def _size(folder: str) -> int:
    """Bytes that the files in a folder and its folders take."""
    total = 0
    for entry in _entries(folder):
        found = _stat(entry)
        if found is not None:
            total += found.st_blocks * 512
            total += _size(entry.path) if stat.S_ISDIR(found.st_mode) else 0
    return total


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
    """Pids in nested pid namespaces: torch and hooks put the pid of their own one into names."""
    found: set[int] = set()
    for pid in procfs.pids(proc):
        try:
            status = procfs.read(f"{proc}/{pid}/status", 1 << 16)
        except (OSError, *procfs.GONE):
            continue
        for line in status.splitlines():
            if line.startswith(b"NSpid:"):
                found.update(map(int, line.split()[2:]))  # the first is the pid here
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
