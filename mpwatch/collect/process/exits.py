"""Exits of processes, also of those that are not children of the observer.

A pidfd becomes readable at once when a process exits, and refers to that process after its pid is
reused. The exit status is read in the zombie's `stat` until its parent reaps it, and since Linux
6.15 by the pidfd afterwards.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from collections.abc import Callable, Iterable

from mpwatch.collect.process import procfs
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended

# include/uapi/linux/pidfd.h: struct pidfd_info of the first version is 64 bytes, its mask comes
# first and its exit code, a wait status, last. PIDFD_GET_INFO is _IOWR(0xFF, 11, struct pidfd_info)
# and came with 6.13, PIDFD_INFO_EXIT with 6.15; it is answered once the process was collected.
_INFO = struct.Struct("<Q52xi")
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
_INFO_EXIT = 1 << 3

_NO_PIDFD = -1


class ExitWatch:
    """Reports which of the watched processes have exited, and how."""

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._pidfds: dict[ProcessId, int] = {}
        self._by_fd: dict[int, ProcessId] = {}
        self._without_pidfd: set[ProcessId] = set()
        self._epoll = select.epoll()
        self._ended: list[Ended] = []
        self._reported: set[ProcessId] = set()
        """Processes whose exit was reported; a zombie is in the tree until it is reaped."""

    def fileno(self) -> int:
        """A descriptor that is readable when a process has ended."""
        return self._epoll.fileno()

    def watch(self, processes: Iterable[ProcessId]) -> None:
        """Watch these as well; those already watched, or reported as ended, cost nothing."""
        for process in processes:
            if process not in self._pidfds and process not in self._reported:
                self._begin(process)

    def forget_collected(self, present: Iterable[ProcessId]) -> None:
        """Forget reported processes that are no longer in the job, so that memory stays bounded."""
        if self._reported:
            self._reported.intersection_update(present)

    def poll(self, timeout_s: float = 0.0) -> list[Ended]:
        """The processes that have exited since the last call; waits at most this long for one."""
        for fd, _ in self._epoll.poll(0 if self._ended else timeout_s):
            self._end(self._by_fd[fd])
        for process in list(self._without_pidfd):
            stat = procfs.read_stat(self._proc, process.pid)
            if stat is None or stat.process != process or stat.state in ("Z", "X"):
                self._end(process)
        ended, self._ended = self._ended, []
        self._reported.update(end.process for end in ended)
        return ended

    def is_about_to_report(self) -> bool:
        """Whether a watched process is exiting: it is reported once the kernel has finished."""
        for process in self._pidfds:
            stat = procfs.read_stat(self._proc, process.pid)
            if stat is None or stat.process != process or stat.has_ended:
                return True
        return False

    def close(self) -> None:
        """Close every descriptor."""
        for fd in self._by_fd:
            os.close(fd)
        self._by_fd.clear()
        self._pidfds.clear()
        self._without_pidfd.clear()
        self._epoll.close()

    def _begin(self, process: ProcessId) -> None:
        """Open a pidfd; without one (old kernel, seccomp, too many) the process is polled."""
        try:
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            self._ended.append(self._unknown(process, "it exited before it could be watched"))
            return
        except OSError:
            self._pidfds[process] = _NO_PIDFD
            self._without_pidfd.add(process)
            return
        # Only now is it certain that pid and descriptor refer to the same process.
        stat = procfs.read_stat(self._proc, process.pid)
        if stat is not None and stat.process != process:
            os.close(fd)
            self._ended.append(self._unknown(process, "it exited before it could be watched"))
            return
        self._pidfds[process] = fd
        self._by_fd[fd] = process
        self._epoll.register(fd, select.EPOLLIN)

    def _end(self, process: ProcessId) -> None:
        """Report an exit and stop watching."""
        fd = self._pidfds.pop(process)
        self._without_pidfd.discard(process)
        status = None
        if fd != _NO_PIDFD:
            status = exit_status(fd)
            del self._by_fd[fd]
            self._epoll.unregister(fd)
        if status is None:
            status = self._zombie_status(process)
        if status is None and fd != _NO_PIDFD:
            status = exit_status(fd)  # reaped between the two readings
        if fd != _NO_PIDFD:
            os.close(fd)
        self._ended.append(
            self._unknown(process, "its parent had reaped it before its exit status could be read")
            if status is None
            else as_ended(process, self._clock(), status)
        )

    def _zombie_status(self, process: ProcessId) -> int | None:
        """The wait status in a zombie's `stat`, which is 0 also where the kernel hides it."""
        stat = procfs.read_stat(self._proc, process.pid)
        if stat is None or stat.process != process or stat.state not in ("Z", "X"):
            return None
        if stat.exit_code is not None:
            return stat.exit_code
        return 0 if self._may_look_into(process.pid) else None

    def _may_look_into(self, pid: int) -> bool:
        """Whether the kernel shows the true exit code of a process to this observer."""
        try:
            own = procfs.read(f"{self._proc}/self/status")
            owner = os.stat(f"{self._proc}/{pid}").st_uid
        except OSError:
            return False
        capabilities = procfs.parse_status(own).get(b"CapEff", b"0")
        return owner == os.geteuid() or bool(int(capabilities, 16) & procfs.CAP_SYS_PTRACE)

    def _unknown(self, process: ProcessId, problem: str) -> Ended:
        """An exit without a known status."""
        return Ended(process, self._clock(), problem=problem)


def exit_status(pidfd: int) -> int | None:
    """The wait status of a process that was reaped; `None` if the kernel does not have it."""
    try:
        answer = fcntl.ioctl(pidfd, _GET_INFO, _INFO.pack(_INFO_EXIT, 0))
    except OSError:
        return None
    mask, status = _INFO.unpack(answer)
    return int(status) if mask & _INFO_EXIT else None


def as_ended(process: ProcessId, at_s: float, status: int) -> Ended:
    """A wait status as an exit code or a signal."""
    if os.WIFSIGNALED(status):
        return Ended(process, at_s, signal=os.WTERMSIG(status))
    return Ended(process, at_s, exit_code=os.WEXITSTATUS(status))
