"""Stops a demonstration in time, with all processes it started, even if they hang.

The programs of this package show processes that hang in native code, outlive their parent or are
killed, so none of them can be relied on to clean up. `mpwatch.demo.bounds` starts this process,
which leaves the demonstration's process tree at once and observes it from outside: it records
every descendant, and once the main process has exited it kills those and all other processes with
the demonstration's mark, and removes their segments, cgroup and temporary directory.

It runs as a script and needs only the standard library.
"""

from __future__ import annotations

import contextlib
import glob
import os
import select
import shutil
import signal
import sys
import time

INTERVAL_MS = 150
GRACE_S = 5.0
"""Seconds a program may run after its time, before it gets SIGTERM."""
TERM_S = 2.0
TRACKER_S = 6.0
"""Seconds a resource tracker gets to remove what it tracks."""


def start_ticks(pid: int) -> str | None:
    """Field 22 of the process's stat, or `None` if it has exited, as a zombie too."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def children(pid: int) -> list[int]:
    """Pids of the children of all threads of a process."""
    found: list[int] = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path) as listing:
                found += map(int, listing.read().split())
        except OSError:
            continue
    return found


class Family:
    """A process and all its descendants seen so far, by pid and start time."""

    def __init__(self, main: int, folder: str) -> None:
        self._known: dict[int, str] = {}
        self._main = main
        self._folder = folder
        self.add_new()

    @property
    def pids(self) -> list[int]:
        """Pids of all these processes, living or not."""
        return list(self._known)

    def add_new(self) -> None:
        """Add descendants that were started since the last call."""
        waiting = [self._main, *self.living()]
        seen = {os.getpid()}  # while the process that started it runs, this is a descendant too
        while waiting:
            pid = waiting.pop()
            ticks = start_ticks(pid)
            if pid in seen or ticks is None:
                continue
            seen.add(pid)
            self._known.setdefault(pid, ticks)
            waiting += children(pid)

    def search(self) -> None:
        """Add processes with the mark: children started just before their parent exited."""
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue  # this process has inherited the mark as well
            ticks = start_ticks(int(name))
            if ticks is not None and is_marked(int(name), self._folder):
                self._known.setdefault(int(name), ticks)

    def living(self) -> list[int]:
        """Pids of the processes that still run; a reused pid is not one."""
        return [pid for pid, ticks in self._known.items() if start_ticks(pid) == ticks]

    def end(self) -> None:
        """Kill all that still run; resource trackers get some seconds to finish their work."""
        until = time.monotonic() + TRACKER_S
        self.search()
        while living := self.living():
            self.add_new()
            self.search()
            late = time.monotonic() > until
            for pid in living:
                if late or not is_resource_tracker(pid):
                    send(pid, signal.SIGKILL)
            if time.monotonic() > until + 2:
                return  # in uninterruptible sleep, which SIGKILL may not end
            time.sleep(0.05)


def is_marked(pid: int, folder: str) -> bool:
    """Whether a process inherited the mark of the demonstration with this directory."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            if b"MPWATCH_DEMO=" + folder.encode() in environ.read().split(b"\0"):
                return True
        mark = os.path.join(folder, "demonstration")
        return any(os.readlink(fd.path) == mark for fd in os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return False  # it has exited, or belongs to another user


def is_resource_tracker(pid: int) -> bool:
    """Whether this is the process that unlinks named semaphores and shared memory."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
            return b"resource_tracker" in cmdline.read()
    except OSError:
        return False


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have exited."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


class Request:
    """A request to stop, made by SIGTERM, also after the main process has exited."""

    def __init__(self) -> None:
        self.is_made = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, _signal: int, _frame: object) -> None:
        self.is_made = True


def watch(family: Family, main: int, until_s: float, outlive_s: float) -> None:
    """Wait until the main process has exited, by itself or because its time was over."""
    request = Request()
    try:
        pidfd = os.pidfd_open(main)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    while not poll.poll(INTERVAL_MS):
        family.add_new()
        if time.monotonic() > until_s + TERM_S:
            send(main, signal.SIGKILL)
        elif request.is_made or time.monotonic() > until_s:
            send(main, signal.SIGTERM)
    os.close(pidfd)
    rest_until_s = time.monotonic() + outlive_s
    while family.living() and time.monotonic() < rest_until_s and not request.is_made:
        time.sleep(INTERVAL_MS / 1000)
        family.add_new()


def tidy(pids: list[int], folder: str) -> None:
    """Remove the segments of these processes, the cgroup noted in the folder, and the folder."""
    for pid in pids:
        for path in glob.glob(f"/dev/shm/torch_{pid}_*"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup")) as note:
        for group in note.read().splitlines():
            os.rmdir(group)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Leave the caller's tree and watch it; arguments: pid, seconds, seconds after, folder."""
    if os.fork():
        os._exit(0)
    pid, seconds, outlive_s, folder = sys.argv[1:]
    until_s = time.monotonic() + float(seconds) + GRACE_S
    family = Family(int(pid), folder)
    watch(family, int(pid), until_s, float(outlive_s))
    family.end()
    tidy(family.pids, folder)


if __name__ == "__main__":
    main()
