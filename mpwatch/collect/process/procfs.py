"""Reading and parsing of procfs files; small files stay open between readings."""

from __future__ import annotations

import os
import re
import resource
import time
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DELETED = " (deleted)"
"""What the kernel adds to the path of a file that has no name any more."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CAP_SYS_PTRACE = 1 << 19
"""Of the bits of `CapEff` in `/proc/PID/status` (linux/capability.h)."""
TCP_LISTEN = b"0A"
"""State of a listening socket in `/proc/net/tcp` (include/net/tcp_states.h)."""
CHUNK_BYTES = 1 << 16
ARGUMENT_COUNT_LIMIT = 64
CMDLINE_BYTES_LIMIT = 1 << 16
ENVIRON_BYTES_LIMIT = 1 << 20
PREFIXED_LIMIT = 64
VALUE_BYTES = 64
_FORKED_NO_EXEC, _EXITING = 0x40, 0x4
"""PF_FORKNOEXEC and PF_EXITING of include/linux/sched.h, the same since Linux 2.6."""

GONE = (FileNotFoundError, ProcessLookupError)
"""What the kernel returns for a process that has exited: ENOENT on open, ESRCH on read."""


class Stat(NamedTuple):
    """The fields of `/proc/PID/stat` (or of a thread's) that are used; see proc_pid_stat(5)."""

    pid: int
    name: str
    state: str
    parent_pid: int
    group: int
    session: int
    tty: int
    minor_faults: int
    major_faults: int
    cpu_ticks: int
    nice: int
    thread_count: int
    start_ticks: int
    rss_pages: int
    exit_code: int | None
    """Wait status of a zombie; `None` where the kernel hides it (it shows 0) or cut the line."""

    process: ProcessId
    """Its identity; of a thread, the thread's own."""
    is_fork: bool = False
    """Forked, and nothing executed since (PF_FORKNOEXEC): it still says so as a zombie."""
    is_exiting: bool = False
    """Its exit has begun (PF_EXITING). Between that and `Z`, which can take a while on a loaded
    machine, its memory is gone, so that most other files of `/proc/PID` are empty or missing."""
    system_ticks: int = 0
    """The part of `cpu_ticks` in the kernel: system calls and page faults."""
    environment_at: tuple[int, int] = (0, 0)
    """Where the initial environment begins and ends; 0 where the process may not be inspected. Each
    program that is executed has it elsewhere."""
    cpu: int = 0
    """Number of the cpu that it last ran on."""

    @property
    def has_ended(self) -> bool:
        """Whether it runs no code of its program any more."""
        return self.is_exiting or self.state in ("Z", "X")


def read(path: str, limit: int = CHUNK_BYTES) -> bytes:
    """The first `limit` bytes of a file, in as few system calls as it takes.

    Raises:
        OSError: As open(2) and read(2) say.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, min(limit, CHUNK_BYTES))
        # procfs returns whole records and may return less than requested: only an empty read is
        # the end. Small files are complete in one read of less than a page.
        if len(data) < 2048:
            return data
        parts, size = [data], len(data)
        while size < limit:
            data = os.read(fd, min(limit - size, 1 << 20))
            if not data:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)
    finally:
        os.close(fd)


def parse_stat(line: bytes) -> Stat:
    """Parse a `stat` line.

    Raises:
        ValueError: It is not such a line.
    """
    # The name sits in parentheses and may itself hold spaces and parentheses, so the fields start
    # after the last one.
    opening, closing = line.find(b"("), line.rfind(b")")
    fields = line[closing + 2 :].split()
    if opening < 0 or len(fields) < 22 or len(fields[0]) != 1:
        raise ValueError("this is no stat line, or it is cut short")
    code = int(fields[49]) if len(fields) > 49 else 0
    pid, start_ticks = int(line[:opening]), int(fields[19])
    return Stat(
        pid=pid,
        name=_clean_name(line[opening + 1 : closing]),
        state=fields[0].decode("ascii", "replace"),
        parent_pid=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        tty=int(fields[4]),
        minor_faults=int(fields[7]),
        major_faults=int(fields[9]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        nice=int(fields[16]),
        thread_count=int(fields[17]),
        start_ticks=start_ticks,
        rss_pages=int(fields[21]),
        exit_code=code or None,
        process=ProcessId(pid, start_ticks),
        is_fork=bool(int(fields[6]) & _FORKED_NO_EXEC),
        is_exiting=bool(int(fields[6]) & _EXITING),
        system_ticks=int(fields[12]),
        environment_at=(int(fields[47]), int(fields[48])) if len(fields) > 48 else (0, 0),
        cpu=int(fields[36]) if len(fields) > 36 else 0,
    )


@lru_cache(maxsize=4096)
def _clean_name(raw: bytes) -> str:
    """The cleaned name: there are few different ones, each read a thousand times."""
    return clean(raw)


def read_stat_line(proc: str, pid: int) -> bytes:
    """The `stat` line of a process, empty once it is gone."""
    try:
        return read(f"{proc}/{pid}/stat", 4096)
    except GONE:
        return b""


def parent_in(line: bytes) -> int:
    """The parent's pid in a `stat` line, without parsing the rest; 0 if there is none."""
    fields = line[line.rfind(b")") + 2 :].split(b" ", 2)
    return (number(fields[1]) or 0) if len(fields) > 2 else 0


def stat_or_none(line: bytes) -> Stat | None:
    """A parsed `stat` line, or `None` if it is none."""
    try:
        return parse_stat(line)
    except ValueError:
        return None


def read_stat(proc: str, pid: int) -> Stat | None:
    """`stat` of a process, or `None` once it is gone."""
    return stat_or_none(read_stat_line(proc, pid))


def stat_of(pid: int, proc: str = "/proc") -> Stat:
    """`stat` of a process that is expected to exist.

    Raises:
        OSError: It has exited, or is hidden from this process.
    """
    line = read(f"{proc}/{pid}/stat", 4096)
    if not line:
        raise ProcessLookupError(pid)
    return parse_stat(line)


def age_s(pid: int, proc: str = "/proc") -> float:
    """Seconds since the start of a process.

    Raises:
        OSError: It has exited, or is hidden from this process.
    """
    started_s = stat_of(pid, proc).start_ticks / TICKS_PER_S
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def read_cmdline(proc: str, pid: int) -> tuple[str, ...]:
    """The command line, cleaned and bounded; empty for kernel threads and zombies.

    Raises:
        OSError: It cannot be read.
    """
    raw = read(f"{proc}/{pid}/cmdline", CMDLINE_BYTES_LIMIT)
    parts = raw.rstrip(b"\0").split(b"\0", ARGUMENT_COUNT_LIMIT)
    if len(parts) > ARGUMENT_COUNT_LIMIT:
        parts[ARGUMENT_COUNT_LIMIT:] = ["…".encode()]
    return tuple(map(clean, parts)) if raw else ()


def read_environment(
    proc: str, pid: int, wanted: frozenset[bytes], prefixes: tuple[bytes, ...] = ()
) -> dict[str, str]:
    """The wanted variables of the initial environment.

    Args:
        proc: Path of procfs.
        pid: The process.
        wanted: Names.
        prefixes: Of at most `PREFIXED_LIMIT` further names. A value that is cut ends with its
            checksum, so that two of them can be compared.

    Raises:
        OSError: It cannot be read.
    """
    raw = read(f"{proc}/{pid}/environ", ENVIRON_BYTES_LIMIT)
    found = {}
    room = PREFIXED_LIMIT
    for entry in raw.split(b"\0"):
        name, sign, value = entry.partition(b"=")
        if sign and name in wanted:
            found[name.decode("ascii")] = clean(value)
        elif sign and room and name.startswith(prefixes):
            room -= 1
            found[clean(name, 64)] = told_apart(value)
    return found


def told_apart(value: bytes) -> str:
    """A value, sanitized; one that is long is cut and ends with its checksum."""
    if len(value) <= VALUE_BYTES:
        return clean(value)
    return f"{clean(value[:VALUE_BYTES])}… {zlib.crc32(value):08x}"


_STATUS = re.compile(
    rb"^(Tgid|Uid|NSpid|TracerPid|VmSize|RssAnon|RssShmem|SigCgt|SigIgn|SigPnd|CapEff|Cpus_allowed"
    rb"|voluntary_ctxt_switches|nonvoluntary_ctxt_switches):[ \t]*(.*)$",
    re.M,
)


def parse_status(data: bytes) -> dict[bytes, bytes]:
    """The lines of `status` that are used, by name."""
    return dict(_STATUS.findall(data))


def is_stopped_for_its_stack(proc: str, folder: str) -> bool:
    """Whether a thread in state `t` is stopped by a child of this process, or no longer.

    That is py-spy, which takes stacks: a stop of some milliseconds, and no state of the program.

    Args:
        proc: Path of procfs.
        folder: That of the process or thread.
    """
    try:
        tracer = int(parse_status(read(f"{folder}/status")).get(b"TracerPid", b"0"))
    except (OSError, ValueError):
        return False
    stat = read_stat(proc, tracer) if tracer else None
    return stat is None or stat.parent_pid == os.getpid()


def pids(proc: str) -> list[int]:
    """All processes.

    Raises:
        OSError: procfs itself cannot be listed.
    """
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]


def task_ids(proc: str, pid: int) -> list[int]:
    """The thread ids of a process, main thread first; empty once it is gone or hidden."""
    try:
        names = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return []
    return [int(name) for name in names if name.isdecimal()]


def has_children_files(proc: str) -> bool:
    """Whether the kernel lists children (CONFIG_PROC_CHILDREN), so that no full scan is needed."""
    return os.path.exists(f"{proc}/thread-self/children") or os.path.exists(
        f"{proc}/self/task/{os.getpid()}/children"
    )


def children(proc: str, pid: int, tids: list[int]) -> list[int]:
    """Direct children; one started by a non-main thread is listed under that thread only."""
    found: list[int] = []
    for tid in tids:
        try:
            found.extend(map(int, read(f"{proc}/{pid}/task/{tid}/children").split()))
        except (OSError, ValueError):
            continue
    return found


def boot_wall_s(proc: str) -> float | None:
    """When the machine started, seconds since 1970; `None` if the kernel does not say."""
    try:
        data = read(f"{proc}/stat", 1 << 20)
    except OSError:
        return None
    for line in reversed(data.splitlines()):
        if line.startswith(b"btime "):
            return float(line.split()[1])
    return None


_ESCAPED = re.compile(r"\\([0-7]{3})")
_IO = re.compile(rb"^(rchar|wchar): (\d+)$", re.M)


class StatusCounters(NamedTuple):
    """Numbers of `/proc/PID/status`; `None` where it does not show them."""

    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    cpus_allowed: int | None = None
    """How many cpus it may run on."""
    signals_caught: int | None = None
    """`SigCgt` mask."""
    signals_ignored: int | None = None
    """`SigIgn` mask."""
    shmem_kb: int | None = None
    """Resident shared memory."""
    anon_kb: int | None = None
    """Resident memory that belongs to no file: heap, stacks, private anonymous mappings."""
    virtual_kb: int | None = None
    """All that is mapped, resident or not."""


NO_COUNTERS = StatusCounters()


def read_status(proc: str, pid: int) -> StatusCounters:
    """Read `status`; without numbers where that fails."""
    try:
        found = parse_status(read(f"{proc}/{pid}/status"))
    except OSError:
        return NO_COUNTERS
    return StatusCounters(
        voluntary_switches=number(found.get(b"voluntary_ctxt_switches")),
        involuntary_switches=number(found.get(b"nonvoluntary_ctxt_switches")),
        cpus_allowed=_bits(found.get(b"Cpus_allowed")),
        signals_caught=number(found.get(b"SigCgt"), 16),
        signals_ignored=number(found.get(b"SigIgn"), 16),
        shmem_kb=_kilobytes(found.get(b"RssShmem")),
        anon_kb=_kilobytes(found.get(b"RssAnon")),
        virtual_kb=_kilobytes(found.get(b"VmSize")),
    )


def read_io(proc: str, pid: int) -> tuple[int | None, int | None]:
    """Bytes read and written by system calls, pipes included."""
    try:
        data = read(f"{proc}/{pid}/io", 1024)
    except OSError:
        return None, None
    found = dict(_IO.findall(data))
    return number(found.get(b"rchar")), number(found.get(b"wchar"))


def read_bytes_of(data: bytes) -> int | None:
    """Bytes read by system calls, by the content of `io` of a process or a thread."""
    return next((number(count) for name, count in _IO.findall(data) if name == b"rchar"), None)


def unescaped(text: str) -> str:
    r"""A path from mountinfo, where blanks are written as `\040`."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), text)


SOCKETS_BYTES = 4 << 20
"""Of a table of TCP sockets; those that listen are its first rows."""


class TcpListener(Struct, frozen=True):
    """A row of `/proc/net/tcp` or `tcp6`."""

    table: str
    """`tcp` or `tcp6`."""
    inode: bytes
    address: bytes
    """As the kernel writes it, hexadecimal words in the order of bytes of the machine."""
    port: int


def tcp_listeners(process: str) -> Iterator[TcpListener]:
    """The listening TCP sockets in the network namespace of a process.

    Args:
        process: Its folder in procfs.

    Raises:
        OSError: The process is gone, or hidden.
    """
    for table in ("tcp", "tcp6"):
        for line in read(f"{process}/net/{table}", SOCKETS_BYTES).splitlines()[1:]:
            fields = line.split(None, 10)
            # sl, local address, remote address, state, ..., inode: proc(5), the same in both.
            if len(fields) > 9 and fields[3] == TCP_LISTEN:
                address, _, number_ = fields[1].partition(b":")
                port = number(number_, 16)
                if port is not None:
                    yield TcpListener(table, fields[9], address, port)


MOUNTS_BYTES = 4 << 20
"""Of `mountinfo`: some ten thousand mounts."""
LOCAL_TYPES = frozenset(
    ("tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "overlay", "zfs", "f2fs", "bcachefs")
)
"""File systems that answer without a network or a program (filesystems(5)): of another one, a stat
may wait for ever for a server that does not answer."""


class MountPoint(Struct, frozen=True):
    """One mount."""

    point: str
    root: str
    """What of the file system is mounted there."""
    type: str
    options: str
    """Those of the file system."""


def mount_points(mountinfo: bytes) -> list[MountPoint]:
    """The mounts in the lines of `mountinfo`, those on top last; see proc_pid_mountinfo(5)."""
    found = []
    for line in mountinfo.decode("utf-8", "surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if len(fields) > 5 and len(tail) > 2 and "\0" not in (point := unescaped(fields[4])):
            found.append(MountPoint(point, unescaped(fields[3]), tail[0], tail[2]))
    return found


class MountTable:
    """The mounts of one mount namespace: where a path lies, without a look at the path itself."""

    def __init__(self, mounts: Iterable[MountPoint] = ()) -> None:
        types = {each.point: each.type for each in mounts}
        self._types = sorted(types.items(), key=lambda each: -len(each[0]))

    def type_of(self, path: str) -> str:
        """The type of the file system that an absolute path lies in; empty if not known.

        Args:
            path: Without symbolic links, which are not followed.
        """
        for point, type_ in self._types:
            if path == point or point == "/" or path.startswith(f"{point}/"):
                return type_
        return ""

    def is_local(self, path: str) -> bool:
        """Whether a path lies in a file system that answers without a network or a program."""
        return self.type_of(path) in LOCAL_TYPES

    def not_local_in(self, folder: str) -> frozenset[str]:
        """The names in a folder at which a file system is mounted that may not answer."""
        before = folder.rstrip("/") + "/"
        inside = (
            point[len(before) :]
            for point, type_ in self._types
            if type_ not in LOCAL_TYPES and point.startswith(before)
        )
        return frozenset(name for name in inside if name and "/" not in name)


def read_mounts(proc: str, pid: int | str) -> MountTable:
    """The mounts of a process; none if they cannot be read."""
    try:
        return MountTable(mount_points(read(f"{proc}/{pid}/mountinfo", MOUNTS_BYTES)))
    except OSError:
        return MountTable()


def number(text: bytes | None, base: int = 10) -> int | None:
    """A number of at most 64 bits; `None` for anything else, as other kernels may show it."""
    try:
        value = int(text or b"", base)
    except ValueError:
        return None
    return value if 0 <= value < 1 << 64 else None


def _kilobytes(text: bytes | None) -> int | None:
    """The number in `812 kB`."""
    words = (text or b"").split()
    return number(words[0]) if words else None


def _bits(text: bytes | None) -> int | None:
    """How many bits are set in a mask of cpus, which is longer than 64 bits on large machines."""
    try:
        return int((text or b"").replace(b",", b""), 16).bit_count()
    except ValueError:
        return None


KEPT_LIMIT = 4096
SMALL_BYTES = 4096
"""One read gives all of such a file."""


class DescriptorBudget:
    """How many descriptors all readers together may hold open."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    @classmethod
    def of_this_process(cls, proc: str) -> DescriptorBudget:
        """Half of what this process may open; 0 where `proc` is a copy of a procfs.

        Files of a copy do not vanish with the process.
        """
        if proc != "/proc":
            return cls(0)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(KEPT_LIMIT if soft == resource.RLIM_INFINITY else min(KEPT_LIMIT, soft // 2))


class OpenFiles:
    """Small files that stay open between readings, so that the kernel need not find them again."""

    def __init__(self, budget: DescriptorBudget) -> None:
        self._budget = budget
        self._fds: dict[str, int] = {}

    def read(self, path: str) -> bytes:
        """The content of a file of less than `SMALL_BYTES`.

        Raises:
            OSError: As open(2) and read(2) say; the file is closed.
        """
        fd = self._fds.get(path)
        if fd is not None:
            try:
                return os.pread(fd, SMALL_BYTES, 0)
            except OSError:
                self.forget(path)
                raise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, SMALL_BYTES, 0)
        except OSError:
            os.close(fd)
            raise
        if self._budget.left > 0:
            self._budget.left -= 1
            self._fds[path] = fd
        else:
            os.close(fd)
        return data

    def size(self, folder: str) -> int:
        """The size of a folder, which stays open.

        Raises:
            OSError: As open(2) and stat(2) say; the folder is closed.
        """
        fd = self._fds.get(folder)
        if fd is None:
            if self._budget.left <= 0:
                return os.stat(folder).st_size
            # Reading the folder would take more rights than its size does.
            fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._budget.left -= 1
            self._fds[folder] = fd
        try:
            return os.stat(fd).st_size
        except OSError:
            self.forget(folder)
            raise

    def forget(self, path: str) -> None:
        """Close one file, if it is open."""
        fd = self._fds.pop(path, None)
        if fd is not None:
            os.close(fd)
            self._budget.left += 1

    def close(self) -> None:
        """Close all files."""
        for path in list(self._fds):
            self.forget(path)

    def __del__(self) -> None:
        self.close()
