"""The directory for the hook's files, removal of those of dead processes, reads of its own procfs.

The files of a process that was killed stay for the autopsy, for a bounded time and size. A program
may kill its workers every minute for a week, so a search is made when a hook is attached and also
after some forks. A search is made in steps, because a fork must not wait for it.

A write to a frozen file system (`fsfreeze`, a snapshot) waits in the kernel until that is thawed,
and a process with a thread that waits there does not end, not even by SIGKILL. The kernel cannot
be asked whether a file system is frozen. But it drops one write there instead of waiting: that of
the time of the last access (`touch_atime` in Linux's fs/inode.c). So each process has a symbolic
link that it reads before it writes: if the link's time of access stays, the disk is frozen.

By default (`relatime`) the kernel writes that time only if it is before the time of the last
change. So the latter is set to a day that has not come. Reading a link needs no descriptor. Some
file systems store whole seconds (ext4 with inodes of 128 bytes): there a disk that was asked within
the last second counts as not frozen.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import operator
import os
import resource
import stat
import sys

from .. import wire
from ..safe import foreign_exceptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from ..safe.unpatched import System

IN_MEMORY = (b"tmpfs", b"ramfs")
_UNKNOWN = (b"", 0)
"""The `mount_of` a path where the mount table cannot be read."""
_MOUNTS_BYTES = 4 << 20
"""Limit for the mount table; a machine with containers has some hundred mounts of 200 bytes."""
KEEP_DEAD_S = 24 * 3600
"""How long the files of a dead process stay for `mpwatch autopsy`."""
KEEP_DEAD_BYTES = 64 << 20
"""Limit for the files of all dead processes together; the oldest are removed first."""
SWEEP_EVERY = 64
"""One fork in this many, and one spawned child in this many, begins a search."""
BEGIN_S = 0.005
"""How long a search runs where it begins; that is enough for 100 processes (0.05 ms each)."""
_LINK_TEXT = "mpwatch-reads-this-to-see-whether-the-disk-is-frozen"
_SECOND_NS = 10**9
_LINK_CHANGED_NS = (2**31 - 2) * _SECOND_NS + 1
"""January 2038, the last time with a fraction of a second that all file systems can store. Where
the fraction is lost, times of access are whole seconds, too."""
_TICK_NS = 20_000_000
"""Two accesses may have the same time, that of the last tick of the kernel's timer (10 ms)."""
_STORE_ACCESS = (b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs")
"""File systems whose times of access the kernel writes itself; NFS leaves that to the server."""
OWN_MACHINE = (*IN_MEMORY, *_STORE_ACCESS, b"overlay")
"""File systems that no other machine shares: a process with files there runs here, or is dead."""
_AF_UNIX, _SOCK_STREAM = 1, 1
_detach: Callable[[Any], int] = operator.methodcaller("detach")
_NOT_KEPT = (wire.SOCKET_SUFFIX, wire.CHECK_SUFFIX)


class MightBlock(Exception):
    """The directory is not in memory, so only the hook's thread may access it, or it is frozen."""


def find_directory(
    system: System,
    environ: Mapping[str, str],
    mounts: dict[str, tuple[bytes, int]],
    may_block: bool = True,
    parent: str = "",
) -> tuple[str | None, str]:
    """Find or make the directory for the hooks of this user.

    Of the effective one, with whose rights this process writes there.

    Args:
        system: The operating system.
        environ: The environment of this process.
        mounts: `mount_of` each candidate as far as it is known; what is read is added.
        may_block: Whether directories on disks may be accessed: not on the program's threads, which
            would wait while that file system is slow or its server does not answer.
        parent: The stem of the files of the parent process, see `is_frozen`.

    Returns:
        The directory or `None`, and why earlier candidates could not be used.

    Raises:
        MightBlock: The next candidate is on a disk, which may not be accessed or is frozen.
    """
    problems: list[str] = []
    if wire.has_several_users(system.os):  # since the hook was attached
        return None, wire.SEVERAL_USERS
    uid = system.os.geteuid()
    for path in wire.runtime_candidates(uid, environ.get("XDG_RUNTIME_DIR")):
        if not mounts.get(path, _UNKNOWN)[0]:
            mounts[path] = mount_of(system, path)
        kind = mounts[path][0]
        if kind not in IN_MEMORY and (not may_block or is_frozen(system, path, parent, kind)):
            raise MightBlock(path)
        try:
            problem = _refuse(system, path, uid)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise
            problem = f"{path}: {error.strerror}"
        if problem is None:
            return path, "; ".join(problems)
        problems.append(problem)
    return None, "; ".join(problems)


def is_frozen(system: System, directory: str, stem: str, kind: bytes | None = None) -> bool:
    """Whether a directory, or the one in which it is to be made, takes no writes now.

    Never blocks; `False` also where that is not known.

    Args:
        system: The operating system.
        directory: A path.
        stem: The stem of the files of a process that may have prepared a link in there.
        kind: Type of its file system, if it is known.
    """
    by_link = is_link_frozen(system, f"{directory}/{stem}{wire.CHECK_SUFFIX}")
    if by_link is not None:
        return by_link
    if kind is None:
        kind, _ = mount_of(system, directory)
    return is_directory_frozen(system, directory, kind)


def mount_of(system: System, path: str) -> tuple[bytes, int]:
    """Type and `st_dev` of the file system that a path lies on; no type if it is not known.

    Python has no `statfs`, so this is read from the mount table (proc_pid_mountinfo(5)) for the
    path as it is written, without an access that could block. If a symbolic link leads elsewhere,
    the opened file has another device.
    """
    try:
        table = read(system, "/proc/self/mountinfo", _MOUNTS_BYTES)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return _UNKNOWN
    wanted = os.fsencode(path)
    longest, (kind, device) = 0, _UNKNOWN
    for line in table.splitlines():
        fields = line.split(b" ")
        # Optional fields end with "-"; the type of the file system follows.
        if len(fields) < 9 or b"-" not in fields[6:-1]:
            continue
        point = _unescaped(fields[4])
        is_above = wanted == point or wanted.startswith(point.rstrip(b"/") + b"/")
        if not is_above or len(point) < longest:
            continue
        # Of several on one mount point, the last covers the others.
        longest = len(point)
        kind = fields[fields.index(b"-", 6) + 1]
        major, _, minor = fields[2].partition(b":")
        device = system.os.makedev(int(major), int(minor))
    return kind, device


def _unescaped(name: bytes) -> bytes:
    """A path of the mount table, in which blanks and backslashes are octal numbers."""
    for code in (b"\\040", b"\\011", b"\\012", b"\\134"):
        name = name.replace(code, bytes((int(code[1:], 8),)))
    return name


def start_ticks(system: System, pid: int | str = "self") -> int | None:
    """Field 22 of a process's stat file, or `None` if the process is not visible."""
    try:
        fields = read(system, f"/proc/{pid}/stat")
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None
    # The command is in parentheses and may itself hold spaces and parentheses.
    return int(fields[fields.rindex(b")") + 2 :].split()[19])


def parent_and_name() -> tuple[int, str]:
    """Pid of the parent, and name of this process, from `multiprocessing`.

    The parent of a child of a forkserver is the process that requested it, not the server. A
    process that `multiprocessing` did not start has parent 0.
    """
    module = sys.modules.get("multiprocessing.process")
    process = getattr(module, "_current_process", None)
    parent, name = getattr(process, "_parent_pid", None), getattr(process, "_name", None)
    # A program may store any object there.
    known = parent if isinstance(parent, int) and 0 < parent < 1 << 32 else 0
    return known, name if isinstance(name, str) else ""


def thread_count(system: System) -> int | None:
    """Number of threads in the kernel, including those of native libraries; `None` if not known.

    Each is a link of the directory of tasks (`proc_task_getattr` in Linux's fs/proc/base.c). No
    descriptor is needed for that, and no audit hook is told, for which a fork would have to wait.
    """
    try:
        links: int = system.os.stat("/proc/self/task").st_nlink
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None
    return links - 2 if links > 2 else None


def require_size(size: int) -> None:
    """Require that this process may write a file of so many bytes.

    Beyond RLIMIT_FSIZE (`ulimit -f`) a write fails with EFBIG, but SIGXFSZ is sent first. Python
    ignores that; a program that has restored its default action ends.

    Raises:
        OSError: It may not; EFBIG.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < size:
        raise OSError(errno.EFBIG, "the limit of file sizes (ulimit -f) is too low")


def name_thread(system: System, tid: int, name: bytes) -> None:
    """Set the kernel's name of a thread of this process; without procfs nothing happens.

    Args:
        system: The operating system.
        tid: The kernel's id of the thread.
        name: At most 15 bytes.
    """
    try:
        path = f"/proc/self/task/{tid}/comm"
        (fd,) = opened(system, path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write(system, fd, path, name)
        finally:
            close(system, fd, path)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise


def opened(system: System, path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
    """Open a file when a descriptor is unpacked from this, right before a `try` that closes it.

    No signal handler runs between the opening and the store. If the descriptor were the result of a
    call, it would be lost, and stay open, when a handler raises as the call returns.

    Every descriptor of the hook is non-blocking, see `_still_own`; files and procfs ignore that.
    """
    return map(system.os.open, (path,), (flags | system.os.O_NONBLOCK,), (mode,))


def _still_own(system: System, numbers: Iterable[int]) -> Iterator[int]:
    """Those of the hook's descriptors that are not a file of the program by now.

    What `is_open` and `identity` find out may be old: they release the GIL, and until this thread
    has it again the program may close the descriptor and open its own under the number. This asks
    without releasing the GIL, so it belongs into the call that uses the descriptor. The files of
    most programs are blocking.

    Raises:
        OSError: The descriptor is closed.
    """
    return itertools.filterfalse(system.os.get_blocking, numbers)


def on_own(system: System, call: Callable[..., Any], fd: int, *arguments: Any) -> Any:
    """The result of a function in C for a descriptor of the hook.

    Raises:
        OSError: The program has closed the descriptor, or the call failed.
    """
    own = _still_own(system, (fd,))
    results = [*map(call, own, *((each,) for each in arguments))]
    if not results:
        raise OSError(errno.EBADF, "the program closed the descriptor")
    return results[0]


def identity(system: System, file: int | str | bytes) -> tuple[int, int] | None:
    """Device and inode of a descriptor or path; `None` if it is closed or gone."""
    try:
        found = system.os.stat(file)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None
    return found.st_dev, found.st_ino


def is_open(system: System, fd: int, path: str | bytes) -> bool:
    """Whether a descriptor is still open on the file of this path.

    Programs close unknown descriptors (`os.closerange`, daemons), at any time on any thread. The
    number may then be a file of the program, which must not be written, read or closed. If the path
    is gone, this is not known, and the descriptor counts as open.
    """
    # The descriptor last: the interpreter may switch to another thread in either call.
    return identity(system, path) in (None, identity(system, fd))


def require_open(system: System, fd: int, path: str | bytes) -> None:
    """Check before a write that the program has not closed the descriptor, see `is_open`.

    Raises:
        OSError: It has.
    """
    if not is_open(system, fd, path):
        raise OSError(errno.EBADF, "the program closed the descriptor")


def require_own(system: System, fd: int, path: str | bytes) -> None:
    """As `require_open`, for a file that existed: it must be a regular file of this user.

    Of the effective one, who owns what this process makes. Where others can rename in the directory
    above, they can put theirs in its place. To be opened with O_NONBLOCK, since that could be a
    FIFO.

    Raises:
        OSError: It is not.
    """
    require_open(system, fd, path)
    found = system.os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != system.os.geteuid():
        raise OSError(errno.EPERM, "a file of another user is in its place")


def close(system: System, fd: int, path: str | bytes) -> None:
    """Close a descriptor of the hook; one that the program has closed is left alone.

    Of procfs at once, see `close_at_once`: elsewhere it may block (NFS, FUSE).
    """
    is_procfs = path[:6] in ("/proc/", b"/proc/")
    if is_open(system, fd, path):
        _close(system.close_at_once() if is_procfs else system.os.close, system, (fd,))


def _close(close: Callable[[int], Any], system: System, numbers: Iterable[int]) -> None:
    try:
        for _ in map(close, _still_own(system, numbers)):
            pass
    except OSError as error:
        if error.errno != errno.EBADF or not foreign_exceptions.is_ours(error):
            raise


def write(
    system: System, fd: int, path: str | bytes, data: bytes, offset: int | None = None
) -> None:
    """Write to a descriptor of the hook, at its position or at an offset.

    Raises:
        OSError: The program has closed it, or the file takes no writes.
    """
    require_open(system, fd, path)
    if offset is None:
        on_own(system, system.os.write, fd, data)
    else:
        on_own(system, system.os.pwrite, fd, data, offset)


def remove(system: System, path: str | None) -> None:
    """Unlink a file of the hook, which may have been removed already."""
    if path is not None and system.os.access(path, os.F_OK, follow_symlinks=False):
        system.removals += 1
        try:
            system.os.unlink(path)
        except OSError as error:
            if not foreign_exceptions.is_ours(error):
                raise


def _refuse(system: System, path: str, uid: int) -> str | None:
    """Why this directory must not be used, or `None`; it is made if it is missing."""
    reason = wire.runtime_refusal(path, None, uid)
    if reason is not None:
        return f"{path} {reason}"
    with contextlib.suppress(FileExistsError):
        system.os.mkdir(path, 0o700)
    reason = wire.runtime_refusal(path, system.os.lstat(path), uid)
    if reason is not None:
        return f"{path} {reason}"
    if not system.os.access(path, os.W_OK | os.X_OK):
        return f"{path} is not writable"
    return None


def read(system: System, path: str, limit: int = 4096) -> bytes:
    """The first bytes of a file of procfs.

    Raises:
        OSError: It cannot be read, or the program closed the descriptor meanwhile.
    """
    parts: list[bytes] = []
    size = 0
    (fd,) = opened(system, path, system.os.O_RDONLY | system.os.O_CLOEXEC)
    try:
        # `pread` takes nothing from a pipe or socket of the program under this number.
        while size < limit and (part := system.os.pread(fd, min(limit - size, 4096), size)):
            parts.append(part)
            size += len(part)
        require_open(system, fd, path)
    finally:
        close(system, fd, path)
    return b"".join(parts)


class StaleFiles:
    """Searches for files of dead processes in the directory of this process."""

    __slots__ = ("_forks", "_steps", "_system", "directory", "may_block")

    def __init__(self, system: System) -> None:
        self._system = system
        self.restart()

    def restart(self) -> None:
        """Reset in a forked child."""
        self.directory: str | None = None
        self.may_block = True
        """The directory may be on a disk: only the hook's thread accesses it."""
        self._forks = 0
        self._steps: Iterator[None] | None = None

    def is_due(self) -> bool:
        """Whether a search has begun that is not complete, and is for the thread.

        The thread opens hundreds of files for it. So in memory it does that only where it can close
        them without letting the program run meanwhile.
        """
        return self._steps is not None and (self.may_block or self._system.closes_at_once())

    def begin(self) -> None:
        """Begin or continue a search for `BEGIN_S`; what that is too short for, the thread does.

        In a program of one thread, nobody can close a descriptor of the search here. While the
        hook's thread has one open, the program may, and may open its own under that number; it
        would be closed at the end of `listdir`, which does not ask. On a disk there is no choice.
        """
        if self.directory is None:
            return
        steps = self._steps = self._steps or sweep(self._system, self.directory)
        if not self.may_block and self._system.count_threads() == 0:
            until_ns = self._system.monotonic_ns() + int(BEGIN_S * 1e9)
            if all(self._system.monotonic_ns() < until_ns for _ in steps):
                self._steps = None

    def begin_as(self, started_by: str, pid: int) -> None:
        """Begin a search when the hook is attached; in one of `SWEEP_EVERY` spawned children."""
        if started_by in ("spawn", "forkserver"):
            if pid % SWEEP_EVERY == 0:
                self.begin()
        elif started_by != "fork":
            self.begin()

    def count_fork(self) -> None:
        """Begin a search after each `SWEEP_EVERY` forks."""
        self._forks += 1
        if self._forks % SWEEP_EVERY == 0:
            self.begin()

    def work(self, should_stop: Callable[[], bool]) -> None:
        """Continue a search, file by file, until it is complete or the thread has to end."""
        steps = self._steps
        if steps is None or not self.is_due():
            return
        for _ in steps:
            if should_stop():
                return
        self._steps = None


def sweep(system: System, directory: str) -> Iterator[None]:
    """Remove files of dead processes: rings and notes once old or too large, others at once.

    The first step lists the directory.
    """
    try:
        names = system.os.listdir(directory)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return
    kept: list[tuple[float, int, str]] = []
    before: tuple[int, int] | None = None
    is_alive = True
    # Sorted, to look at a process once and not for each of its files: 0.05 ms and not 0.2.
    for name in sorted(names):
        yield
        owner = _owner(name)
        if owner != before:
            before = owner
            is_alive = owner is None or start_ticks(system, owner[0]) == owner[1]
        if is_alive:
            continue
        path = f"{directory}/{name}"
        if name.endswith(_NOT_KEPT):
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
        remove(system, path)


def _owner(name: str) -> tuple[int, int] | None:
    """Pid and start ticks in the name of a file of the hook, or `None`."""
    stem, dot, suffix = name.partition(".")
    pid, dash, ticks = stem.partition("-")
    if (
        dot + suffix not in wire.FILE_SUFFIXES
        or not dash
        or not (pid.isdigit() and ticks.isdigit())
    ):
        return None
    return int(pid), int(ticks)


def _answers(system: System, path: str) -> bool:
    """Whether a process listens on a socket."""
    client: Any = system.socket(_AF_UNIX, _SOCK_STREAM)
    client.setblocking(False)
    known = identity(system, client.fileno())
    try:
        client.connect(path)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        close_socket(system, client, known)
    return True


def close_socket(system: System, sock: Any, known: tuple[int, int] | None) -> None:
    """Close a socket, or only forget it if the program has closed its descriptor, see `is_open`.

    Args:
        system: The operating system.
        sock: The socket.
        known: Its `identity`; it must be non-blocking.
    """
    if identity(system, sock.fileno()) == known:
        _close(system.close_at_once(), system, map(_detach, (sock,)))
    else:
        sock.detach()


def is_link_frozen(system: System, link: str) -> bool | None:
    """Whether the disk with a link of `make_link` takes no writes now; never blocks.

    Returns:
        `None` if there is no such link. `False` also where it is not known, because the mount
        stores no time of access (`noatime`).
    """
    unknown = system.os.ST_NOATIME | system.os.ST_RDONLY
    return _is_access_dropped(system, link, system.os.readlink, link.rpartition("/")[0], unknown)


def is_directory_frozen(system: System, directory: str, kind: bytes) -> bool:
    """The same without a link: by the directory or, if it is missing, the one above.

    `False` also where it is not known, for instance if it was read since its last change.

    Args:
        system: The operating system.
        directory: A path.
        kind: Type of its file system.
    """
    os = system.os
    unknown = os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RDONLY

    def read(path: str) -> None:
        with os.scandir(path) as entries:
            next(entries, None)

    if kind in _STORE_ACCESS:
        for path in (directory, directory.rpartition("/")[0]):
            is_dropped = _is_access_dropped(system, path, read, path, unknown)
            if is_dropped is not None:
                return is_dropped
    return False


def _is_access_dropped(
    system: System, path: str, read: Callable[[str], Any], directory: str, unknown: int
) -> bool | None:
    """Read a file; whether the kernel had to write the time of that and did not.

    Args:
        system: The operating system.
        path: The file.
        read: Reads it.
        directory: A directory of its mount.
        unknown: Flags of mounts where the answer is `False`, for nothing can be known.

    Returns:
        `None` if the file is missing.
    """
    os = system.os
    try:
        before = os.lstat(path)
        before_ns, changes_ns = before.st_atime_ns, (before.st_mtime_ns, before.st_ctime_ns)
        if before_ns > max(changes_ns):
            return False
        now_ns = system.time_ns()
        read(path)
        accessed_ns = os.lstat(path).st_atime_ns
        changed_ns, inode_ns = changes_ns
        is_whole = not (before_ns % _SECOND_NS or changed_ns % _SECOND_NS or inode_ns % _SECOND_NS)
        same_ns = _TICK_NS + is_whole * _SECOND_NS
        if accessed_ns != before_ns or abs(now_ns - accessed_ns) < same_ns:
            return False
        return not os.statvfs(directory).f_flag & unknown
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return None


def make_link(system: System, link: str, kind: bytes) -> None:
    """Make a link for `is_link_frozen` where the file system stores times of access; may block."""
    if kind not in (*_STORE_ACCESS, b"overlay"):
        return
    os = system.os
    try:
        with contextlib.suppress(FileExistsError):  # this process made it before an `exec`
            os.symlink(_LINK_TEXT, link)
        os.utime(link, ns=(0, _LINK_CHANGED_NS), follow_symlinks=False)
        if is_link_frozen(system, link):  # the time is not stored all the same
            os.unlink(link)
    except OSError as error:
        if not foreign_exceptions.is_ours(error):
            raise
