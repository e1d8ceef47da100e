"""What tests read from /proc by hand, independently of mpwatch."""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Callable

_X86 = platform.machine() == "x86_64"
FUTEX, READ, WRITE, WAIT4, RECV = (202, 0, 1, 61, 45) if _X86 else (98, 63, 64, 260, 207)
NANOSLEEP = (230, 35) if _X86 else (115, 101)


def eventually(condition: Callable[[], bool], deadline_s: float = 60.0) -> bool:
    """Whether a condition comes true in time."""
    tick = threading.Event()
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        tick.wait(0.02)
    return True


def resident_kib(pid: int) -> int:
    """The resident memory of a process."""
    return int(status(pid, "VmRSS").split()[0])


def text(pid: int, name: str) -> str:
    """A file of a process, empty once it is gone."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def fields(pid: int) -> list[str]:
    """The fields of stat from the third on, so that `[0]` is the state; empty once it is gone."""
    return text(pid, "stat").rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    stat = fields(pid)
    return bool(stat) and stat[0] not in "ZX"


def start_ticks(pid: int) -> str:
    """Start time of a process in clock ticks; empty once it has exited."""
    stat = fields(pid)
    return stat[19] if stat and stat[0] not in "ZX" else ""


def cpu_ticks(pid: int) -> int:
    """CPU time of a process in clock ticks, user and system."""
    return sum(map(int, fields(pid)[11:13]))


def status(pid: int, name: str) -> str:
    """A line of status; empty once the process has exited."""
    found = re.search(rf"^{name}:\s*(.*)$", text(pid, "status"), re.MULTILINE)
    return found[1] if found else ""


def executable(pid: int) -> str:
    """Name of the program that a process runs; empty once it has exited."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def threads(pid: int) -> list[int]:
    """Thread ids of a process."""
    try:
        return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Children of all its threads."""
    return sorted(
        int(child) for tid in threads(pid) for child in text(pid, f"task/{tid}/children").split()
    )


def descendants(pid: int) -> list[int]:
    """Descendants of a process, parents first."""
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]


def workers(pid: int) -> list[int]:
    """Children of a process that are DataLoader workers."""
    return [child for child in children(pid) if text(child, "comm").startswith("pt_data_work")]


def call(pid: int, tid: int | None = None) -> int | None:
    """Number of the system call a thread is blocked in."""
    words = text(pid, f"task/{tid or pid}/syscall").split()
    return int(words[0]) if words and words[0] not in ("running", "-1") else None


def thread_names(pid: int) -> list[str]:
    """Names of the threads of a process."""
    return [text(pid, f"task/{tid}/comm").strip() for tid in threads(pid)]


def hook_threads(pid: int) -> int:
    """Number of threads with the name of the hook's thread."""
    return thread_names(pid).count("mpwatch-hook")


def links(pid: int) -> list[str]:
    """Targets of the descriptors of a process."""
    found = []
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    for name in names:
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return found


def torch_fds(pid: int) -> int:
    """Descriptors on segments of torch."""
    return sum("/torch_" in link for link in links(pid))


def torch_maps(pid: int) -> int:
    """Mappings of segments of torch."""
    return text(pid, "maps").count("/torch_")


def rollup_kib(pid: int, key: str) -> int:
    """One line of smaps_rollup, in KiB."""
    found = re.search(rf"^{key}:\s+(\d+) kB", text(pid, "smaps_rollup"), re.MULTILINE)
    return int(found[1]) if found else 0


def grows(reading: Callable[[], int], by: int, deadline_s: float = 20.0) -> bool:
    """Whether a reading rises by so much in time."""
    first = reading()
    return eventually(lambda: reading() >= first + by, deadline_s)


def has_last_runs() -> bool:
    """Whether the kernel tells when threads last ran (CONFIG_SCHED_DEBUG)."""
    return "se.exec_start" in text(os.getpid(), "sched")
