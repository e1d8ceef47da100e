"""Running a small command with a time limit, a bound on its output, and its cpu time counted."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

OUTPUT_LIMIT = 64 << 20
ERRORS_LIMIT = 64 << 10


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command went."""

    status: int
    """Exit code; negative for a signal."""
    output: bytes
    errors: str
    cpu_s: float
    limit_s: float
    has_timed_out: bool = False


Runner: TypeAlias = Callable[[Sequence[str], float], Finished]
"""A command and a limit in seconds; raises OSError if it cannot be started."""


def run(command: Sequence[str], limit_s: float) -> Finished:
    """Run a command; at the limit it is killed.

    It gets a session of its own: Ctrl-C in the terminal is meant for us, and a tracer that dies of
    it in the wrong moment leaves its tracee stopped.

    Raises:
        OSError: It cannot be started.
    """
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    err_read, err_write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.posix_spawn(
            command[0],
            list(command),
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out_write, 1),
                (os.POSIX_SPAWN_DUP2, err_write, 2),
            ],
            setsid=True,
        )
    except OSError:
        os.close(out_read)
        os.close(err_read)
        raise
    finally:
        os.close(out_write)
        os.close(err_write)
    texts: dict[int, bytearray] = {out_read: bytearray(), err_read: bytearray()}
    limits = {out_read: OUTPUT_LIMIT, err_read: ERRORS_LIMIT}
    is_complete = False
    try:
        is_complete = _drain(texts, limits, time.monotonic() + limit_s)
    finally:
        if not is_complete:
            os.kill(pid, signal.SIGKILL)
        os.close(out_read)
        os.close(err_read)
        _, status, usage = os.wait4(pid, 0)
    return Finished(
        status=os.waitstatus_to_exitcode(status),
        output=bytes(texts[out_read]),
        errors=texts[err_read].decode("utf-8", "replace"),
        cpu_s=usage.ru_utime + usage.ru_stime,
        limit_s=limit_s,
        has_timed_out=not is_complete,
    )


def _drain(texts: dict[int, bytearray], limits: dict[int, int], until_s: float) -> bool:
    """Read until all ends are closed; `False` if that did not happen in time or in bounds."""
    poller = select.poll()
    for fd in texts:
        poller.register(fd, select.POLLIN)
    left = len(texts)
    while left:
        ready = poller.poll(max(0.0, until_s - time.monotonic()) * 1000)
        if not ready:
            return False
        for fd, _ in ready:
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                poller.unregister(fd)
                left -= 1
            texts[fd] += chunk
            if len(texts[fd]) > limits[fd]:
                return False
    return True
