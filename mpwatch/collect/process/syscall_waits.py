"""What a blocked thread waits for, from its system call and the call's arguments.

The kernel shows number and arguments in `/proc/P/task/T/syscall`; descriptors, mappings and memory
of the process say what the arguments mean. Nothing here stops or changes the process.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
import termios
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.collect.process import procfs
from mpwatch.collect.process.fds import LOCKS_BYTES, kind_of
from mpwatch.collect.process.memory import Mappings, ProcessMemory
from mpwatch.model.samples import (
    FILE_LOCK_CALLS,
    OPENS,
    VFORKED,
    LockHolder,
    WaitedOn,
    WaitKind,
    inode_of,
)
from mpwatch.model.sanitize import clean

FDS_LIMIT = 256
"""Of one poll or select; more are not listed."""
_LOCK = re.compile(
    rb"^(\d+):( ->)? +(FLOCK|POSIX|OFDLCK)\b.*? (-?\d+) [0-9a-f]+:[0-9a-f]+:\d+ ", re.M
)
"""Number, mark of a waiting lock, kind and pid (proc_locks(5); Linux 4.14 to 6.18)."""

_READS = frozenset(("read", "readv", "recvfrom", "recvmsg", "recvmmsg", "pread64", "splice"))
_WRITES = frozenset(("write", "writev", "sendto", "sendmsg", "pwrite64", "sendfile"))
_COUNTED = frozenset(("read", "recvfrom", "write", "sendto"))
"""Whose third argument is a number of bytes."""
_TRANSFERS = frozenset(
    ("write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile", "splice", "tee", "vmsplice")
)
_REPORT_EINTR = frozenset(
    (
        "accept", "accept4", "connect", "epoll_pwait", "epoll_pwait2", "epoll_wait", "io_getevents",
        "io_pgetevents", "io_uring_enter", "ppoll", "pselect6", "recvfrom", "recvmmsg", "recvmsg",
        "rt_sigtimedwait", "semop", "semtimedop",
    )
)  # fmt: skip
"""Calls that may fail with EINTR after a mere stop: those that signal(7) names, and two whose time
limit may be in memory that cannot be written (poll_select_finish, fs/select.c of Linux 6)."""
_WITH_TIME_LIMIT = frozenset(("read", "readv"))
"""Calls that do so on a socket with SO_RCVTIMEO, which cannot be seen from outside."""
_RECEIVES = {"recvfrom": 3, "recvmsg": 2, "recvmmsg": 3}
"""Calls that receive, with the index of their flags."""
_GET_EVENTS = frozenset(("io_getevents", "io_pgetevents"))
_PIDFD_GETFD = 438  # of every processor, since Linux 5.6
_MSG_WAITALL, _MSG_WAITFORONE = 0x100, 0x10000  # linux/socket.h
_PIPE_BUF = 4096  # linux/limits.h: a write of so many bytes to a pipe is done whole or not at all
_SYNCS = frozenset(("fsync", "fdatasync", "syncfs", "sync_file_range"))
_ON_DISK = _READS | _WRITES | _SYNCS
"""Calls that wait for a disk, whose first argument is the descriptor."""
_FIFO_CHANNEL = "wait_for_partner"
"""The kernel function in which the open of a FIFO waits (fs/pipe.c of Linux; seen on 6.18)."""
_VFORK_CHANNELS = frozenset(("kernel_clone", "_do_fork", "wait_for_vfork_done"))
"""The kernel functions in which the parent of a vfork waits, kernel/fork.c of Linux: since 5.10
(seen on 6.18), before that, and where the compiler keeps them apart."""
_PATH_BYTES = 4096
_TO_READ, _TO_WRITE = "for reading", "for writing"
_EPOLLS = frozenset(("epoll_wait", "epoll_pwait", "epoll_pwait2"))
_SIGNALS = frozenset(("pause", "rt_sigsuspend", "rt_sigtimedwait"))
_TIMERS = frozenset(("nanosleep", "clock_nanosleep"))
_TFD = re.compile(rb"^tfd:\s+(\d+)", re.M)

# linux/futex.h, linux/wait.h, linux/time.h
_FUTEX_PRIVATE, _FUTEX_REALTIME, _FUTEX_COMMAND = 128, 256, 0x7F
_FUTEX_WAIT_BITSET, _FUTEX_LOCK_PI = 9, 6
_P_PID, _P_PIDFD = 1, 3
_TIMER_ABSTIME = 1


class BlockedCall(Struct, frozen=True):
    """One reading of `/proc/P/task/T/syscall`."""

    number: int
    """-1 where the thread is blocked outside a system call (a page fault)."""
    arguments: tuple[int, ...] = ()


def parse_syscall(line: bytes) -> BlockedCall | None:
    """Parse the line; `None` for a thread that runs."""
    words = line.split()
    if not words or words[0] == b"running":
        return None
    if words[0] == b"-1":
        return BlockedCall(-1)  # outside a system call only stack and instruction pointer follow
    number = procfs.number(words[0])
    arguments = tuple(procfs.number(word, 16) for word in words[1:7])
    if number is None or None in arguments:
        return None
    return BlockedCall(number, tuple([each for each in arguments if each is not None]))


def transfer_of(call: BlockedCall, machine: str, folder: str) -> str | None:
    """The transfer that a call has begun and that a stop of the thread may end early.

    Such a call returns how many bytes were transferred until then, as after a signal (write(2),
    "NOTES"; `waits_for_all`; Linux 6).

    Args:
        call: The call in which the thread is blocked.
        machine: As uname(2) calls it.
        folder: Path of the process in procfs.

    Returns:
        The call in words, such as `write(5)`; `None` for all others.
    """
    name = names(machine).get(call.number, "")
    if len(call.arguments) < 6:
        return None
    fd, pid = call.arguments[0], int(os.path.basename(folder))
    if name not in _TRANSFERS and not waits_for_all(name, call.arguments, pid):
        return None
    if name == "write" and call.arguments[2] <= _PIPE_BUF:
        try:
            if os.readlink(f"{folder}/fd/{fd}").startswith("pipe:"):
                return None
        except OSError:
            pass  # not known to be a pipe
    return f"{name}({fd})"


def reports_eintr(call: BlockedCall, machine: str, folder: str) -> str | None:
    """The call, in words, if it may fail with EINTR after its thread was merely stopped.

    Args:
        call: The call in which the thread is blocked.
        machine: As uname(2) calls it.
        folder: Path of the process in procfs.

    Returns:
        The call in words, such as `epoll_wait`; `None` for all others.
    """
    name = names(machine).get(call.number, "")
    if name in _REPORT_EINTR:
        return name
    if name not in _WITH_TIME_LIMIT or not call.arguments:
        return None
    try:
        is_socket = os.readlink(f"{folder}/fd/{call.arguments[0]}").startswith("socket:")
    except OSError:
        return None  # closed meanwhile, or not readable: then py-spy may not stop it either
    return f"{name} of a socket" if is_socket else None


def waits_for_all(name: str, arguments: Sequence[int], pid: int) -> bool:
    """Whether a call waits until all that was asked for is there, and gives less after a signal.

    - With MSG_WAITALL all bytes (recv(2)); `recvmmsg` all messages, unless the first is to be the
      only one that it waits for (recvmmsg(2)).
    - Several bytes: see `_waits_for_several`.
    - Several events (io_getevents(2)); where it has submitted some itself, `io_uring_enter` returns
      their number (io_uring_enter(2)).

    Args:
        name: Of the call.
        arguments: All six.
        pid: The process, of which a descriptor may be looked at.
    """
    if name in _GET_EVENTS:
        return arguments[1] > 1
    if name == "io_uring_enter":
        return arguments[1] > 0
    flags_at = _RECEIVES.get(name)
    if flags_at is not None:
        flags = arguments[flags_at]
        if name == "recvmmsg" and arguments[2] > 1 and not flags & _MSG_WAITFORONE:
            return True
        if flags & _MSG_WAITALL:
            return True
    return name in _READS and _waits_for_several(pid, arguments[0])


def _waits_for_several(pid: int, fd: int) -> bool:
    """Whether readers of a descriptor wait for more than one byte, and get less after a signal.

    A socket with SO_RCVLOWAT (socket(7)), or a terminal in raw mode with VMIN (termios(3)); both
    can be set at any other time, and are read from a duplicate of the descriptor. `False` where
    there is none: before Linux 5.6, or without the right to trace the process.
    """
    try:
        kind = os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False
    if not kind.startswith(("socket:", "/dev/")):
        return False
    copy = _duplicate(pid, fd)
    if copy is None:
        return False
    try:
        if kind.startswith("/dev/"):
            _, _, _, local, _, _, characters = termios.tcgetattr(copy)
            least = 1 if local & termios.ICANON else characters[termios.VMIN]
            return isinstance(least, int) and least > 1
        with socket.socket(fileno=os.dup(copy)) as end:
            return end.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) > 1
    except (OSError, termios.error):
        return False  # no terminal, or no such option
    finally:
        os.close(copy)


def _duplicate(pid: int, fd: int) -> int | None:
    """A duplicate of a process's descriptor (pidfd_getfd(2)); `None` where that is refused."""
    import ctypes  # few calls need it, and loading it takes milliseconds

    try:
        process = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        copy: int = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, fd, 0)
    finally:
        os.close(process)
    return copy if copy >= 0 else None


def may_lie_in_a_mapping(line: bytes) -> bool:
    """Whether the futex of this line may be one that processes share: a semaphore in a file."""
    call = parse_syscall(line)
    return call is None or len(call.arguments) < 2 or not call.arguments[1] & _FUTEX_PRIVATE


def call_name(names: Mapping[int, str], call: BlockedCall | None, wchan: str | None) -> str:
    """The name of a call; one that a signal or a tracer interrupted goes by its wait channel.

    The kernel then shows `restart_syscall`, with the original call's arguments still in place.

    Args:
        names: Of the processor's system calls, by their numbers.
        call: The call, if it is known.
        wchan: What `/proc/PID/task/TID/wchan` has, if it could be read.
    """
    name = names.get(call.number, "") if call is not None else ""
    if name != "restart_syscall" or not wchan:
        return name
    if "futex" in wchan:
        return "futex"
    if "nanosleep" in wchan:
        return "nanosleep"
    return "poll" if "poll" in wchan else name


class WaitResolver:
    """Turns the blocked calls of one process into what they wait for."""

    def __init__(
        self,
        proc: str,
        pid: int,
        names: dict[int, str],
        mappings: Callable[[], Mappings | None],
        outside_pid: Callable[[int], int | None],
        now_s: float,
        wall_s: float,
    ) -> None:
        """Prepare for one process and one moment.

        Args:
            proc: Path of procfs.
            pid: The process.
            names: System calls by number.
            mappings: Gives the process's mappings, needed for a shared futex.
            outside_pid: Translates a pid of the process's namespace to the observer's.
            now_s: CLOCK_MONOTONIC, against which absolute deadlines are measured.
            wall_s: CLOCK_REALTIME, likewise.
        """
        self._proc = proc
        self._pid = pid
        self._names = names
        self._mappings = mappings
        self._outside_pid = outside_pid
        self._now_s = now_s
        self._wall_s = wall_s
        self._memory = ProcessMemory(proc, pid)

    def resolve(self, call: BlockedCall | None, state: str, wchan: str | None) -> WaitedOn | None:
        """What a thread waits for; `None` for one that runs or of which nothing is known."""
        name = call_name(self._names, call, wchan)
        if state in ("T", "t"):
            return WaitedOn("stopped", name or "-")
        if state == "D":
            return self._disk(name, call, wchan)
        if call is None or not name:
            return None
        arguments = (call.arguments + (0,) * 6)[:6]
        if name in ("open", "openat") and wchan == _FIFO_CHANNEL:
            return self._fifo(name, arguments)
        return self._by_name(name, arguments)

    def _by_name(self, name: str, arguments: Sequence[int]) -> WaitedOn:
        """What one call with its arguments waits for."""
        if name == "futex":
            return self._futex(arguments)
        if name in _READS or name in _WRITES:
            return self._transfer(name, arguments, name in _WRITES)
        if name in ("accept", "accept4", "connect"):
            kind: WaitKind = "socket-write" if name == "connect" else "accept"
            return self._on_fds(kind, name, (_int32(arguments[0]),))
        if name in ("poll", "ppoll"):
            return self._poll(name, arguments)
        if name in ("select", "pselect6"):
            return self._select(name, arguments)
        if name in _EPOLLS:
            return self._epoll(name, arguments)
        if name in ("wait4", "waitid"):
            return self._child(name, arguments)
        if name in _TIMERS:
            return self._timer(name, arguments)
        if name in FILE_LOCK_CALLS:
            wait = self._on_fds("unknown", name, (_int32(arguments[0]),))
            return replace(wait, holder=holder_for(self._proc, self._pid))
        if name == "ioctl" or name in _SYNCS:
            return self._on_fds("unknown", name, (_int32(arguments[0]),))
        return WaitedOn("signal" if name in _SIGNALS else "unknown", name)

    def _fifo(self, name: str, arguments: Sequence[int]) -> WaitedOn:
        """The open of a FIFO, which returns when another process opens the other end."""
        address, flags = arguments[:2] if name == "open" else arguments[1:3]
        path = self._memory.text(address, _PATH_BYTES)
        writes = flags & os.O_ACCMODE == os.O_WRONLY
        what = f"{OPENS}{clean(path) if path else 'that FIFO'} {_TO_READ if writes else _TO_WRITE}"
        return WaitedOn("unknown", name, (what,))

    def _futex(self, arguments: Sequence[int]) -> WaitedOn:
        """A lock: in a mapped file it is a semaphore that processes share."""
        address, operation = arguments[0], arguments[1]
        # A futex that only threads of one process use is marked private; glibc leaves the mark off
        # for semaphores made to be shared, so only those need the mappings.
        found = None
        if not operation & _FUTEX_PRIVATE:
            mappings = self._mappings()
            found = mappings.at(address) if mappings is not None else None
        return WaitedOn(
            kind="semaphore" if found is not None else "futex",
            call="futex",
            targets=(f"sem {found[0]}" if found is not None else f"futex {address:#x}",),
            address=address,
            segment=found[0] if found is not None else None,
            value=self._memory.word(address) if found is not None else None,
            timeout_s=self._futex_timeout_s(operation, arguments[3]),
            futex_command=operation & _FUTEX_COMMAND,
        )

    def _futex_timeout_s(self, operation: int, pointer: int) -> float | None:
        """Seconds a futex call waits at most."""
        at_s = self._memory.timespec_s(pointer)
        command = operation & _FUTEX_COMMAND
        if at_s is None or command not in (_FUTEX_WAIT_BITSET, _FUTEX_LOCK_PI):
            return at_s
        is_wall = operation & _FUTEX_REALTIME or command == _FUTEX_LOCK_PI
        return max(0.0, at_s - (self._wall_s if is_wall else self._now_s))

    def _transfer(self, name: str, arguments: Sequence[int], is_write: bool) -> WaitedOn:
        """A read or write: of a pipe, a socket, or something else."""
        fd = _int32(arguments[0])
        target = self._target(fd)
        what = kind_of(target)
        kind: WaitKind = "unknown"
        queued = None
        if what == "pipe":
            kind = "pipe-write" if is_write else "pipe-read"
            queued = queued_bytes(self._proc, self._pid, fd)
        elif what == "socket":
            kind = "socket-write" if is_write else "socket-read"
        wanted = arguments[2] if name in _COUNTED else None
        return WaitedOn(
            kind, name, (clean(target),), (fd,), queued_bytes=queued, wanted_bytes=wanted
        )

    def _poll(self, name: str, arguments: Sequence[int]) -> WaitedOn:
        """The descriptors in the array handed to poll."""
        count = min(arguments[1], FDS_LIMIT)
        raw = self._memory.read(arguments[0], count * 8)
        fds = tuple(fd for fd, _, _ in struct.iter_unpack("<ihh", raw or b"") if fd >= 0)
        if name == "poll":
            timeout_ms = _int32(arguments[2])
            timeout_s = timeout_ms / 1000 if timeout_ms >= 0 else None
        else:
            timeout_s = self._memory.timespec_s(arguments[2])
        return self._on_fds("poll", name, fds, timeout_s)

    def _select(self, name: str, arguments: Sequence[int]) -> WaitedOn:
        """The descriptors in the bit sets handed to select."""
        size = (min(max(0, _int32(arguments[0])), 1024) + 63) // 64 * 8
        fds: set[int] = set()
        for pointer in arguments[1:4]:
            bits = int.from_bytes(self._memory.read(pointer, size) or b"", "little")
            fds.update(n for n in range(size * 8) if bits >> n & 1)
        timeout_s = self._memory.timespec_s(arguments[4]) if name == "pselect6" else None
        return self._on_fds("poll", name, tuple(sorted(fds)[:FDS_LIMIT]), timeout_s)

    def _epoll(self, name: str, arguments: Sequence[int]) -> WaitedOn:
        """The descriptors an epoll instance watches."""
        epoll_fd = _int32(arguments[0])
        try:
            info = procfs.read(f"{self._proc}/{self._pid}/fdinfo/{epoll_fd}")
        except OSError:
            info = b""
        fds = tuple(int(number) for number in _TFD.findall(info)[:FDS_LIMIT])
        timeout_s = None
        if name != "epoll_pwait2":
            timeout_ms = _int32(arguments[3])
            timeout_s = timeout_ms / 1000 if timeout_ms >= 0 else None
        return self._on_fds("poll", name, fds or (epoll_fd,), timeout_s)

    def _child(self, name: str, arguments: Sequence[int]) -> WaitedOn:
        """The process whose exit is waited for."""
        fds: tuple[int, ...] = ()
        inside = _int32(arguments[0]) if name == "wait4" else 0
        if name == "waitid":
            if arguments[0] == _P_PID:
                inside = _int32(arguments[1])
            elif arguments[0] == _P_PIDFD:
                fds = (_int32(arguments[1]),)
        if inside <= 0:
            return WaitedOn("child", name, ("any child",), fds)
        outside = self._outside_pid(inside)
        return WaitedOn("child", name, (f"pid {inside if outside is None else outside}",), fds)

    def _timer(self, name: str, arguments: Sequence[int]) -> WaitedOn:
        """How long the requested sleep lasts."""
        pointer = arguments[0] if name == "nanosleep" else arguments[2]
        timeout_s = self._memory.timespec_s(pointer)
        is_absolute = name == "clock_nanosleep" and arguments[1] & _TIMER_ABSTIME
        if timeout_s is not None and is_absolute:
            is_wall = arguments[0] == 0
            timeout_s = max(0.0, timeout_s - (self._wall_s if is_wall else self._now_s))
        return WaitedOn("timer", name, timeout_s=timeout_s)

    def _disk(self, name: str, call: BlockedCall | None, wchan: str | None) -> WaitedOn:
        """Uninterruptible: a disk or network file system, a driver, a core dump, vfork."""
        targets = [wchan] if wchan else []
        if wchan in _VFORK_CHANNELS:
            targets.insert(0, VFORKED)
        fds: tuple[int, ...] = ()
        if call is not None and call.arguments and name in _ON_DISK:
            fds = (_int32(call.arguments[0]),)
            targets.insert(0, clean(self._target(fds[0])))
        return WaitedOn("disk", name or "-", tuple(targets), fds)

    def _on_fds(
        self, kind: WaitKind, name: str, fds: tuple[int, ...], timeout_s: float | None = None
    ) -> WaitedOn:
        """A wait on any of these descriptors."""
        targets = tuple(clean(self._target(fd)) for fd in fds)
        return WaitedOn(kind, name, targets, fds, timeout_s=timeout_s)

    def _target(self, fd: int) -> str:
        """What a descriptor points to; `fd N` where that cannot be seen."""
        try:
            return os.readlink(f"{self._proc}/{self._pid}/fd/{fd}")
        except OSError:
            return f"fd {fd}"


def queued_bytes(proc: str, pid: int, fd: int) -> int | None:
    """Unread bytes in a pipe of another process, or `None`.

    The pipe is opened for one ioctl only: while it is open there is one more reader, and a writer
    whose last real reader exits would get no error.
    """
    path = f"{proc}/{pid}/fd/{fd}"
    try:
        if inode_of(os.readlink(path)) is None:
            return None
        own = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        answer = fcntl.ioctl(own, termios.FIONREAD, b"\0\0\0\0")
    except OSError:
        return None
    finally:
        os.close(own)
    return int.from_bytes(answer, "little")


def _int32(register: int) -> int:
    """The low half of a register as the signed int a call declares."""
    low = register & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


_X86_64: dict[int, str] = {
    0: "read", 1: "write", 2: "open", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64",
    19: "readv", 20: "writev", 23: "select", 26: "msync", 34: "pause", 35: "nanosleep",
    40: "sendfile", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 61: "wait4", 65: "semop",
    69: "msgsnd", 70: "msgrcv", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync",
    128: "rt_sigtimedwait", 130: "rt_sigsuspend", 162: "sync", 202: "futex", 208: "io_getevents",
    219: "restart_syscall", 220: "semtimedop", 230: "clock_nanosleep", 231: "exit_group",
    232: "epoll_wait", 243: "mq_timedreceive", 247: "waitid", 257: "openat", 270: "pselect6",
    271: "ppoll", 275: "splice", 276: "tee", 277: "sync_file_range", 278: "vmsplice",
    281: "epoll_pwait", 288: "accept4", 299: "recvmmsg", 306: "syncfs", 307: "sendmmsg",
    333: "io_pgetevents", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
    455: "futex_wait",
}  # fmt: skip

_AARCH64: dict[int, str] = {
    4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat",
    63: "read", 64: "write", 65: "readv", 66: "writev", 67: "pread64", 68: "pwrite64",
    71: "sendfile", 72: "pselect6", 73: "ppoll", 75: "vmsplice", 76: "splice", 77: "tee",
    81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 94: "exit_group", 95: "waitid",
    98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 128: "restart_syscall",
    133: "rt_sigsuspend", 137: "rt_sigtimedwait", 183: "mq_timedreceive", 188: "msgrcv",
    189: "msgsnd", 192: "semtimedop", 193: "semop", 202: "accept", 203: "connect", 206: "sendto",
    207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 220: "clone", 221: "execve", 227: "msync",
    242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs", 269: "sendmmsg",
    292: "io_pgetevents", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
    455: "futex_wait",
}  # fmt: skip


def names(machine: str) -> dict[int, str]:
    """System calls by number for a machine as uname(2) calls it; empty for an unknown one."""
    return {"x86_64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}.get(machine, {})


def holder_for(proc: str, waiter: int) -> LockHolder | None:
    """The process that took the lock which another process is blocked on.

    The kernel names the process that took the lock. A lock of flock(2) belongs to the open file,
    so that process may have exited since and left the lock to a child with the same descriptor.
    Processes of other pid namespaces are not shown.

    Args:
        proc: Path of procfs.
        waiter: Pid of the process that is blocked in flock(2) or fcntl(2).

    Returns:
        The holder; `None` if the kernel does not show one.
    """
    try:
        table = procfs.read(f"{proc}/locks", LOCKS_BYTES)
    except OSError:
        return None
    pid = _holder_pid(table, waiter)
    if pid is None or pid <= 0:
        return None
    try:
        name = procfs.read(f"{proc}/{pid}/comm").decode("utf-8", "replace").strip()
    except OSError:
        name = ""
    return LockHolder(pid, clean(name))


def _holder_pid(table: bytes, waiter: int) -> int | None:
    """The pid of the lock that blocks a waiting one: both have the same number."""
    holders: dict[bytes, int] = {}
    for number, waits, _, pid in _LOCK.findall(table):
        if not waits:
            holders[number] = int(pid)
        elif int(pid) == waiter:
            return holders.get(number)
    return None
