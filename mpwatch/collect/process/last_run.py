"""When a thread last ran, which the kernel knows of the time before anybody watched.

`se.exec_start` in `/proc/PID/task/TID/sched` is what the clock of the thread's cpu showed when the
thread last ran, in milliseconds (`update_curr` in kernel/sched/fair.c, and likewise for the other
policies; Linux 2.6.23 to 6.18 with CONFIG_SCHED_DEBUG, as distributions have it). Those clocks
leave out the time that interrupts and a hypervisor have taken from their cpu
(`update_rq_clock_task`), so that they differ from each other, by hours after months. Hence the
clock of a cpu is read on that cpu.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mpwatch.collect.own_threads import OwnThreads
from mpwatch.collect.process import procfs
from mpwatch.collect.process.procfs import TICKS_PER_S, Stat

LEAST_S = 2.0
"""Younger threads, and those that ran so lately, are better watched."""
KEPT_S = LEAST_S
"""For so long a clock that was read is carried on by the monotonic clock. It falls behind that by
what interrupts and a hypervisor take: by less than this, so that no thread which has just run seems
to have slept for `LEAST_S`."""
ANSWER_S = 0.5
"""The thread that reads the clock of a cpu gets that cpu within this time, or the clock is not
known: a real-time thread may have the cpu for itself."""
UNANSWERED_LIMIT = 2
"""After so many cpus that did not answer, no other one is asked: each holds up the reading, and the
thread that waits for it stays."""
BUDGET_S = 0.05
"""CPU time of one reading after which only main threads are asked for: a job of 200 processes with
hundreds of threads each would take half a second longer to be shown."""
_KEY = b"\nse.exec_start"


def last_run_ms(file: bytes) -> float | None:
    """What the clock of its cpu showed when a thread last ran, from its `sched` file.

    Returns:
        Milliseconds, or `None` where the file does not say so: it is 0 from the moment in which a
        thread is woken on another cpu until it runs there.
    """
    value = file.partition(_KEY)[2].partition(b"\n")[0].partition(b":")[2]
    try:
        return float(value) or None
    except ValueError:
        return None


class NoAnswer(Exception):
    """The clock of a cpu was not read in time, and the thread that reads it still waits."""


class CpuClocks:
    """The clocks by which the kernel notes when threads run."""

    def __init__(
        self,
        read: Callable[[int], float | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            read: Reads the clock of a cpu, in milliseconds; `None` for the kernel's.
            clock: CLOCK_MONOTONIC in seconds.
        """
        self._read = read or _clock_of
        self._clock = clock
        self._known: dict[int, tuple[float, float]] = {}
        self._unknown: set[int] = set()
        self._unanswered = 0

    def now_ms(self, cpu: int) -> float | None:
        """What the clock of a cpu shows now, or up to `KEPT_S` more; `None` if it is not known."""
        known = self._known.get(cpu)
        if known is None or self._clock() - known[0] > KEPT_S:
            read_ms = self._read_once(cpu)
            if read_ms is None:
                return None
            known = self._known[cpu] = self._clock(), read_ms
        at_s, value_ms = known
        return value_ms + 1000 * (self._clock() - at_s)

    def _read_once(self, cpu: int) -> float | None:
        """The clock, read anew; one that could not be read is not tried again."""
        if cpu in self._unknown or self._unanswered >= UNANSWERED_LIMIT:
            return None
        read_ms = None
        try:
            read_ms = self._read(cpu)
        except NoAnswer:
            self._unanswered += 1
        if read_ms is None:
            self._unknown.add(cpu)
        return read_ms


def _clock_of(cpu: int) -> float | None:
    """The clock of a cpu: when a thread ran there that was just moved to it.

    Raises:
        NoAnswer: The thread has not run there within `ANSWER_S`.
    """
    found: list[float | None] = []

    def look() -> None:
        try:
            os.sched_setaffinity(0, {cpu})  # of this thread alone
            found.append(last_run_ms(procfs.read("/proc/thread-self/sched")))
        except OSError:
            found.append(None)  # not a cpu that this process may use, or no such file

    thread = OwnThreads().start(look, "mpwatch-cpu-clock")
    if thread is None:
        return None
    thread.join(ANSWER_S)
    if not found:
        raise NoAnswer
    return found[0]


class LastRunTimes:
    """Tells, in one reading of a job, when threads last ran that are read for the first time."""

    def __init__(
        self,
        clocks: CpuClocks,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Prepare.

        Args:
            clocks: The clocks of the cpus.
            clock: CLOCK_MONOTONIC in seconds.
            cpu_clock: CPU time of this thread in seconds.
        """
        self._clocks = clocks
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._spent_s = 0.0

    def of(self, is_main: bool, folder: str, stat: Stat) -> float | None:
        """When a thread last ran, or a little later.

        Args:
            is_main: Whether it is the main thread of its process; the others are left out once
                `BUDGET_S` are spent.
            folder: Its `/proc/PID/task/TID`.
            stat: Its `stat`.

        Returns:
            Monotonic seconds; `None` where that is not known, or less than `LEAST_S` ago.
        """
        if not is_main and self._spent_s > BUDGET_S:
            return None
        began_s = self._cpu_clock()
        ran_at_s = self._ran_at_s(folder, stat)
        self._spent_s += self._cpu_clock() - began_s
        return ran_at_s

    def _ran_at_s(self, folder: str, stat: Stat) -> float | None:
        now_s = self._clock()
        # The start is noted in CLOCK_BOOTTIME: a machine that was suspended makes it seem older.
        lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.start_ticks / TICKS_PER_S
        if lived_s < LEAST_S:
            return None
        try:
            ran_ms = last_run_ms(procfs.read(f"{folder}/sched"))
        except OSError:  # it has ended, or the kernel has no such file
            return None
        now_ms = self._clocks.now_ms(stat.cpu) if ran_ms is not None else None
        if ran_ms is None or now_ms is None:
            return None
        slept_s = (now_ms - ran_ms) / 1000
        # One that slept for longer than it lived: these are no clocks as described above.
        return now_s - slept_s if LEAST_S <= slept_s <= lived_s else None
