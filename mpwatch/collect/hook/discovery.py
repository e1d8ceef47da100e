"""Finds the hook of a process, and checks that it belongs to that process.

The socket lies in a private directory of the target's user, inside the target's own mounts.
Nothing there is trusted before it is checked: directory and socket must belong to that user and be
closed to others, and the process at the other end must be the expected one. Names there contain
the ids of the target's own namespaces; the kernel translates owners and peers for the caller
(namespaces(7), SO_PEERCRED).

The place of the hook's files was determined by the target's own `os.environ` when the hook was
attached. `/proc/PID/environ` may differ: a program can set XDG_RUNTIME_DIR itself, and
setproctitle(3) overwrites that memory. So which parts of a hook a process holds (thread, mapped
ring, listening socket) is decided by the descriptors and mappings in procfs only.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat as modes
import struct
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from mpwatch.collect.hook import decode
from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import DELETED
from mpwatch.hook import wire
from mpwatch.model.cmdline import isolating_option
from mpwatch.model.samples import ProcSample
from mpwatch.model.sanitize import clean

_PEER = struct.Struct("3i")
"""pid, uid, gid: `struct ucred` of SO_PEERCRED, see unix(7)."""
HELLO_WITHIN_S = 0.5
"""How long to wait for the greeting of a hook. It is sent at once, unless the hook's thread waits
for the GIL or for a cpu; a hook that answers later counts as silent."""
NO_HOOK = "no hook in this process"
_LISTENS = 0x10000  # __SO_ACCEPTCON of /proc/net/unix, see proc(5)
_MEMORY_RING = "/memfd:mpwatch"
_SHARED_MEMORY = b" /dev/zero (deleted)\n"


class NoHook(Exception):
    """No hook can be connected to; the text is the reason."""


def folders(sample: ProcSample, proc: str) -> Iterator[str]:
    """The directories where the hook of a process may have its files, as the observer's paths."""
    if sample.uid is None:
        return
    runtime = sample.environment.get("XDG_RUNTIME_DIR")
    uid_inside = sample.uid if sample.ns_uid is None else sample.ns_uid
    for folder in wire.runtime_candidates(uid_inside, runtime):
        yield f"{proc}/{sample.process.pid}/root{folder}"


FolderMark: TypeAlias = tuple[tuple[int, int, int], ...] | None
"""Device, inode and time of change of each directory that exists; `None` where the last change is
so recent that a further one might have the same time."""
RECENT_NS = 1_000_000_000


class FolderMarks:
    """The directories of hooks as they are now, read once for all processes with the same ones.

    Processes with other mounts may see another directory by the same path: they are only found by
    the search that does not depend on marks.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._found: dict[tuple[int | None, int | None, str | None], FolderMark] = {}

    def of(self, sample: ProcSample) -> FolderMark:
        """The mark of the directories of one process: equal ones mean that no hook was added."""
        key = (sample.uid, sample.ns_uid, sample.environment.get("XDG_RUNTIME_DIR"))
        if key not in self._found:
            self._found[key] = self._read(sample)
        return self._found[key]

    def _read(self, sample: ProcSample) -> FolderMark:
        found = []
        for folder in folders(sample, self._proc):
            with contextlib.suppress(OSError):
                status = os.lstat(folder)
                if time.time_ns() - status.st_mtime_ns < RECENT_NS:
                    return None
                found.append((status.st_dev, status.st_ino, status.st_mtime_ns))
        return tuple(found)


class SocketTables:
    """The tables of Unix sockets as they are now, one read for all processes of one network.

    Reading one for each process took a twentieth of the cpu of a calm dashboard of 64 workers.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._found: dict[int, bytes] = {}

    def of(self, pid: int) -> bytes:
        """The table that a process sees, `/proc/PID/net/unix`.

        Raises:
            OSError: The process has exited.
        """
        try:
            network = os.stat(f"{self._proc}/{pid}/ns/net").st_ino
        except OSError:
            return self._read(pid)  # it may not be asked for its network
        if network not in self._found:
            self._found[network] = self._read(pid)
        return self._found[network]

    def _read(self, pid: int) -> bytes:
        with open(f"{self._proc}/{pid}/net/unix", "rb") as file:
            return file.read()


def has_files(sample: ProcSample, proc: str = "/proc") -> bool:
    """Whether the socket or the ring of a hook exists; no connection is made."""
    name = stem(sample)
    return any(
        os.path.lexists(f"{folder}/{name}{suffix}")
        for folder in folders(sample, proc)
        for suffix in (wire.SOCKET_SUFFIX, wire.RING_SUFFIX)
    )


def connect(
    sample: ProcSample,
    proc: str = "/proc",
    *,
    thorough: bool = True,
    tables: SocketTables | None = None,
) -> socket.socket:
    """Connect to the hook of a process; never blocks.

    Args:
        sample: The process.
        proc: Path of procfs.
        thorough: If there is no hook where the process's environment says, look for the socket
            among those on which the process listens. Takes a fraction of a millisecond.
        tables: The sockets of the machine, if they are read once for several processes.

    Returns:
        A connected, non-blocking socket whose other end is that process.

    Raises:
        NoHook: There is none, or it must not be trusted.
    """
    if sample.uid is None:
        raise NoHook("its owner is not known")
    reason = ""
    for folder in folders(sample, proc):
        try:
            client = _connect_in(folder, sample, proc, (sample.uid,))
        except NoHook as refused:
            reason = reason or str(refused)
            continue
        if client is not None:
            return client
    listening = _listening_folder(sample, proc, tables) if thorough else None
    if listening is not None:
        # A process that has given up root's rights since still listens in root's directory.
        client = _connect_in(listening, sample, proc, (sample.uid, 0))
        if client is not None:
            return client
    if thorough:
        reason = reason or _isolated(sample, proc) or _other_clocks(sample, proc)
    raise NoHook(reason or NO_HOOK)


def read_frame(client: socket.socket, kind: int, within_s: float) -> dict[str, Any] | None:
    """The next frame of a kind, as its JSON object, cleaned.

    Returns:
        `None` after the timeout, if the peer has closed, or if it sent something else than frames.
    """
    deadline_s = time.monotonic() + within_s
    buffer = bytearray()
    while (left_s := deadline_s - time.monotonic()) > 0:
        client.settimeout(left_s)
        try:
            chunk = client.recv(1 << 16)
        except OSError:
            return None
        if not chunk:
            return None
        buffer += chunk
        try:
            while (found := decode.frame(buffer)) is not None:
                if found[0] == kind:
                    return decode.parse_object(found[1])
                del buffer[: found[2]]
        except ValueError:
            return None
    return None


def _isolated(sample: ProcSample, proc: str) -> str:
    """Why `mpwatch run` could not pass the hook on to an interpreter; empty if it could."""
    option = isolating_option(sample.cmdline) if sample.is_python else ""
    if not option:
        return ""
    try:
        found = procfs.read_environment(proc, sample.process.pid, frozenset((b"PYTHONPATH",)))
    except OSError:
        return ""
    if "/mpwatch/hook/startup" not in found.get("PYTHONPATH", ""):
        return ""
    return f"Python was started with {option}, which ignores what mpwatch run passes on"


def _other_clocks(sample: ProcSample, proc: str) -> str:
    """Why the files of a hook have another name than expected; empty if there is no such hook.

    The name has the start time of the process, and events are ordered by CLOCK_MONOTONIC: both
    differ in another time namespace.
    """
    pid = sample.process.pid
    try:
        if os.readlink(f"{proc}/self/ns/time") == os.readlink(f"{proc}/{pid}/ns/time"):
            return ""
        if not find(sample, proc):
            return ""
    except OSError:
        return ""
    return (
        "its hook lives in another time namespace than mpwatch, where clocks differ:"
        f" nsenter --time --target {pid} mpwatch attach {pid}"
    )


def _listening_folder(sample: ProcSample, proc: str, tables: SocketTables | None) -> str | None:
    """The directory of the socket on which the process listens, as the observer's path."""
    try:
        path = listening_socket(sample, proc, tables)
    except OSError:
        return None
    if not path.startswith("/"):
        return None
    return f"{proc}/{sample.process.pid}/root{os.path.dirname(path)}"


def _connect_in(
    folder: str, sample: ProcSample, proc: str, owners: tuple[int, ...]
) -> socket.socket | None:
    """Connect to the hook whose files are in this directory; `None` if there are none.

    Raises:
        NoHook: It cannot be connected to, or must not be trusted.
    """
    name = stem(sample) + wire.SOCKET_SUFFIX
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as error:
        raise NoHook(_refused(folder, proc, sample, error)) from None
    try:
        if not has_socket(fd, name, owners, _shown(folder, proc, sample)):
            return None
        return _connect(fd, name, sample, owners)
    finally:
        os.close(fd)


def has_socket(folder_fd: int, name: str, owners: tuple[int, ...], folder: str) -> bool:
    """Whether the socket exists; a folder or socket that other users control is refused.

    Raises:
        NoHook: They belong to another user, or others have access.
    """
    found = os.fstat(folder_fd)
    if found.st_uid not in owners:
        raise NoHook(f"{folder} belongs to uid {found.st_uid}, not to uid {owners[0]}")
    if modes.S_IMODE(found.st_mode) & 0o077:
        raise NoHook(f"{folder} is open to other users")
    try:
        file = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return False
    if not modes.S_ISSOCK(file.st_mode) or file.st_uid not in owners:
        raise NoHook(f"{folder}/{name} is not a socket of uid {owners[0]}")
    return True


def _connect(
    folder_fd: int, name: str, sample: ProcSample, owners: tuple[int, ...]
) -> socket.socket:
    """Connect through the checked folder, and check which process answers.

    Raises:
        NoHook: No process listens, or the wrong one.
    """
    try:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise NoHook(f"this mpwatch can open no more sockets: {error.strerror}") from None
    try:
        client.setblocking(False)
        # Short for any folder: a socket's path may have 107 bytes.
        client.connect(f"/proc/self/fd/{folder_fd}/{name}")
        pid, uid, _ = _PEER.unpack(
            client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        )
        if pid != sample.process.pid or uid not in owners:
            raise NoHook(f"process {pid} of uid {uid} answers in its place")
    except BlockingIOError:
        client.close()
        raise NoHook("the hook accepts no connection: its queue is full") from None
    except ConnectionRefusedError:
        client.close()
        raise NoHook("the hook's socket is stale: no process listens on it") from None
    except OSError as error:
        client.close()
        raise NoHook(f"the hook's socket: {error.strerror}") from None
    except NoHook:
        client.close()
        raise
    return client


def _shown(folder: str, proc: str, sample: ProcSample) -> str:
    """The path of a folder as the target sees it, for messages."""
    return clean(folder.removeprefix(f"{proc}/{sample.process.pid}/root"))


def _refused(folder: str, proc: str, sample: ProcSample, error: OSError) -> str:
    """Why a folder cannot be opened."""
    shown = _shown(folder, proc, sample)
    if isinstance(error, NotADirectoryError):
        return f"{shown} is not a directory, or a symbolic link"
    return f"{shown}: {error.strerror}"


class Presence(Struct, frozen=True):
    """The parts of a hook that a process holds."""

    tids: tuple[int, ...] = ()
    """Threads with the hook's name."""
    ring: str = ""
    """Path of the mapped ring, as the process sees it."""
    socket: str = ""
    """Path of the listening socket, as the process sees it."""
    has_mark: bool = False
    """Whether it has the memory that marks a hook: all that a forked child has before its first
    record (`wire.MARK`)."""

    def __bool__(self) -> bool:
        return self.is_awake or self.has_mark

    @property
    def is_awake(self) -> bool:
        """Whether there are more parts than the mark."""
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
        if self.has_mark:
            parts.append("the memory that marks it")
        return " and ".join(parts)


def find(sample: ProcSample, proc: str = "/proc") -> Presence:
    """Find all parts.

    Raises:
        OSError: The process has exited, or is hidden from this one.
    """
    pid = sample.process.pid
    ring, has_mark = _mapped(sample, proc)
    return Presence(_threads(pid, proc), ring, listening_socket(sample, proc), has_mark)


def stem(sample: ProcSample) -> str:
    """Name of the hook's files without suffix; the pid in it is that of the process's namespace."""
    pid = sample.ns_pid if sample.ns_pid is not None else sample.process.pid
    return wire.stem(pid, sample.process.start_ticks)


def listening_socket(
    sample: ProcSample, proc: str = "/proc", tables: SocketTables | None = None
) -> str:
    """Path of the hook's listening socket, as the process sees it; empty if there is none.

    A listener that a forked child inherited has another name than the child's own.

    Raises:
        OSError: The process has exited, or its descriptors are hidden.
    """
    name = f"/{stem(sample)}{wire.SOCKET_SUFFIX}".encode()
    pid = sample.process.pid
    table = (tables or SocketTables(proc)).of(pid)
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
            for suffix in wire.FILE_SUFFIXES:
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


def _mapped(sample: ProcSample, proc: str) -> tuple[str, bool]:
    """Path of the ring it maps, and whether it has the mark, from `/proc/PID/maps`.

    The kernel escapes only newlines there.
    """
    ring_path = re.compile(f".*/{stem(sample)}{re.escape(wire.RING_SUFFIX)}")
    ring, has_mark = "", False
    with open(f"{proc}/{sample.process.pid}/maps", "rb") as file:
        for line in file:
            if line.endswith(_SHARED_MEMORY):
                has_mark = has_mark or _is_mark(line, sample.process.pid, proc)
                continue
            if b"mpwatch" not in line and wire.RING_SUFFIX.encode() not in line:
                continue
            fields = os.fsdecode(line.rstrip(b"\n")).split(maxsplit=5)
            path = fields[5].removesuffix(DELETED) if len(fields) == 6 else ""
            if ring_path.fullmatch(path) or path.startswith(_MEMORY_RING):
                ring = ring or path
    return ring, has_mark


def _is_mark(line: bytes, pid: int, proc: str) -> bool:
    """Whether a line of `/proc/PID/maps` is that of the mark.

    Where the memory cannot be read (Yama), any of that size counts.
    """
    begin, end = (int(part, 16) for part in line.split()[0].split(b"-"))
    if end - begin != wire.MARK_PAGES * os.sysconf("SC_PAGESIZE"):
        return False
    try:
        memory = os.open(f"{proc}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(memory, len(wire.MARK), begin) == wire.MARK
        finally:
            os.close(memory)
    except OSError:
        return True
