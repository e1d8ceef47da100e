"""System calls made without releasing the GIL, for the time in which a target is stopped.

A thread that releases the GIL may get it back only after another thread of the observer has run for
5 ms, and the target would stay stopped that long. These calls take microseconds; the longest is
`nap`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from functools import lru_cache

_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1000


class _Time(ctypes.Structure):
    """`struct timespec`."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@lru_cache(maxsize=1)
def libc() -> ctypes.PyDLL:
    """The C library, called with the GIL held (`PyDLL`)."""
    found = ctypes.PyDLL(None, use_errno=True)
    pointer, size, offset = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
    found.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, pointer, pointer)
    found.ptrace.restype = ctypes.c_long
    found.pread.argtypes = (ctypes.c_int, pointer, size, offset)
    found.pread.restype = ctypes.c_ssize_t
    found.pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, size, offset)
    found.pwrite.restype = ctypes.c_ssize_t
    found.nanosleep.argtypes = (pointer, pointer)
    return found


def read(fd: int, count: int, offset: int) -> bytes:
    """As `os.pread`.

    Raises:
        OSError: As errno says.
    """
    buffer = ctypes.create_string_buffer(count)
    got = libc().pread(fd, ctypes.addressof(buffer), count, offset)
    if got < 0:
        raise _last_error()
    return buffer.raw[:got]


def write(fd: int, content: bytes, offset: int) -> int:
    """As `os.pwrite`.

    Raises:
        OSError: As errno says.
    """
    wrote: int = libc().pwrite(fd, content, len(content), offset)
    if wrote < 0:
        raise _last_error()
    return wrote


def nap(nanoseconds: int) -> None:
    """Sleep with the GIL held: no other Python thread of the observer runs meanwhile."""
    time = _Time(0, nanoseconds)
    libc().nanosleep(ctypes.addressof(time), None)


def minimise_latency() -> None:
    """Give the calling thread minimal timer slack and, if permitted, a real-time priority.

    Both last until the thread ends, so it should end soon.
    """
    libc().prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
    lowest = os.sched_get_priority_min(os.SCHED_FIFO)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(lowest))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic collector: a full pass over a dashboard's objects takes milliseconds."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _last_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
