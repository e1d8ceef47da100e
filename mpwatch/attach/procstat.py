"""The few facts of `/proc/PID/stat` that attaching needs."""

from __future__ import annotations

import os
import time


def read_stat(pid: int, proc: str = "/proc") -> tuple[str, str, int]:
    """Name, state and start ticks of a process.

    Raises:
        OSError: It is gone.
    """
    with open(f"{proc}/{pid}/stat", "rb") as file:
        head, _, tail = file.read().rpartition(b")")
    fields = tail.split()
    return head.partition(b"(")[2].decode("utf-8", "replace"), fields[0].decode(), int(fields[19])


def age_s(pid: int, proc: str = "/proc") -> float:
    """For how long a process has existed.

    Raises:
        OSError: It is gone.
    """
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - read_stat(pid, proc)[2] / ticks_per_s
