"""Memory of processes: what `smaps_rollup` adds to the resident size, and words of memory."""

from __future__ import annotations

import os
import re
import struct
import threading
from collections import deque
from collections.abc import Sequence

from mpwatch.collect.process import procfs
from mpwatch.model.samples import MemorySample

_ROLLUP = re.compile(
    rb"^(Rss|Pss|Private_Clean|Private_Dirty|Shared_Clean|Shared_Dirty|Swap):\s+(\d+) kB", re.M
)
_FIELDS = {
    b"Pss": "pss_bytes",
    b"Private_Clean": "private_clean_bytes",
    b"Private_Dirty": "private_dirty_bytes",
    b"Shared_Clean": "shared_clean_bytes",
    b"Shared_Dirty": "shared_dirty_bytes",
    b"Swap": "swap_bytes",
}


READERS = 8


def read_rollup(proc: str, pid: int, at_s: float) -> MemorySample:
    """Read `smaps_rollup`: 2 to 6 ms of cpu on a torch process, 37 ms at 60,000 mappings.

    Raises:
        OSError: The process is gone or hidden, or the kernel is older than 4.14.
    """
    data = procfs.read(f"{proc}/{pid}/smaps_rollup")
    found = {name: int(kilobytes) * 1024 for name, kilobytes in _ROLLUP.findall(data)}
    if not found:
        raise ProcessLookupError("smaps_rollup is empty: the process has no memory any more")
    values = {field: found.get(name) for name, field in _FIELDS.items()}
    return MemorySample(rss_bytes=found.get(b"Rss"), read_at_s=at_s, **values)


class Rollups:
    """`smaps_rollup` of many processes, read on several cpus: the kernel does the work.

    The reading begins at once; `get` waits until its process is read.
    """

    def __init__(self, proc: str, pids: Sequence[int], at_s: float) -> None:
        self._proc = proc
        self._at_s = at_s
        self._pids = frozenset(pids)
        self._left = deque(pids)
        self._found: dict[int, MemorySample | None] = {}
        self._has_more = threading.Condition()
        for _ in range(min(READERS, os.cpu_count() or 1, len(pids))):
            threading.Thread(target=self._read, name="mpwatch-memory", daemon=True).start()

    def get(self, pid: int) -> MemorySample | None:
        """The memory of a process; `None` if it is not among them or cannot be read."""
        if pid not in self._pids:
            return None
        with self._has_more:
            self._has_more.wait_for(lambda: pid in self._found)
        return self._found[pid]

    def _read(self) -> None:
        """Read one process after another until all are taken."""
        while True:
            try:
                pid = self._left.popleft()
            except IndexError:
                return
            found = _read_or_none(self._proc, pid, self._at_s)
            with self._has_more:
                self._found[pid] = found
                self._has_more.notify_all()


def _read_or_none(proc: str, pid: int, at_s: float) -> MemorySample | None:
    try:
        return read_rollup(proc, pid, at_s)
    except OSError:
        return None


class ProcessMemory:
    """Words of another process's memory, where ptrace rights allow; `None` where they do not."""

    def __init__(self, proc: str, pid: int) -> None:
        self._path = f"{proc}/{pid}/mem"

    def read(self, address: int, size: int) -> bytes | None:
        """Exactly `size` bytes, or `None`."""
        if not 0 < address < 1 << 63 or size <= 0:
            return None
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(fd, size, address)
        except (OSError, OverflowError):
            return None
        finally:
            os.close(fd)
        return data if len(data) == size else None

    def word(self, address: int) -> int | None:
        """A 32-bit word: the value of a futex or a glibc semaphore."""
        data = self.read(address, 4)
        return int.from_bytes(data, "little") if data is not None else None

    def text(self, address: int, limit: int) -> bytes | None:
        """A string of C, without its end; `None` if it is longer than the limit.

        It is read in two parts: what lies behind a short string may not be mapped.
        """
        page = 4096 - address % 4096
        data = self.read(address, min(page, limit)) or b""
        if b"\0" not in data and page < limit:
            data += self.read(address + page, limit - page) or b""
        found, end, _ = data.partition(b"\0")
        return found if end else None

    def timespec_s(self, address: int) -> float | None:
        """Seconds in a `struct timespec` of a 64-bit process."""
        data = self.read(address, 16)
        if data is None:
            return None
        seconds, nanoseconds = struct.unpack("<qq", data)
        return float(seconds + nanoseconds / 1e9)
