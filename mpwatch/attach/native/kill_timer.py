"""A timer that kills its own process, also while that is stopped or in a frozen control group.

SIGALRM would wait until the process is continued; SIGKILL does not. Only the freezer of control
groups version 1 also holds back SIGKILL until it thaws the group (cgroup-v1/freezer-subsystem.rst).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any


class _Event(ctypes.Structure):
    """`struct sigevent`, 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("_", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")
    )


class KillTimer:
    """One timer (timer_create(2)) of this process."""

    def __init__(self) -> None:
        """Create it, not running.

        Raises:
            OSError: The kernel has no more timers for this user.
        """
        self._library = c_library()
        self._id = ctypes.c_void_p()
        event = _Event(signo=signal.SIGKILL, notify=0)
        created = self._library.timer_create(
            time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._id)
        )
        _require(created)

    def start(self, seconds: int) -> None:
        """Kill this process in so many seconds.

        Raises:
            OSError: As errno says.
        """
        times = _Times(first_s=seconds)
        _require(self._library.timer_settime(self._id, 0, ctypes.byref(times), None))

    def stop(self) -> None:
        """Do not kill it; a time of 0 disarms a timer.

        Raises:
            OSError: As errno says.
        """
        self.start(0)


def c_library() -> Any:
    """The library that has the functions of timers."""
    library = ctypes.CDLL(None, use_errno=True)
    # Before glibc 2.34 these functions are in a library of their own.
    return (
        library if hasattr(library, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)
    )


def _require(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
