"""Tracing seen from outside: who is stopped, and how to undo a stop."""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from mpwatch.collect.process import procfs
from mpwatch.model.ids import ProcessId

_SIGSTOP_BIT = 1 << (signal.SIGSTOP - 1)
_SETTLE_S = 0.05
"""After its tracer's death a thread takes a moment to act on a stop that was on its way."""
_PAUSE_S = 0.005


class Stops(NamedTuple):
    """Whether a process stands still by order of somebody."""

    state: str
    """Of its main thread, or `D` if any thread is in uninterruptible sleep."""
    tracer_pid: int
    is_stopping: bool
    """A thread is stopped, or a stop signal is on its way to one."""


def stops_of(proc: str, pid: int) -> Stops:
    """Look at all threads of a process; an ended one is in state `X`."""
    states, tracer, is_stopping = [], 0, False
    for tid in procfs.task_ids(proc, pid):
        try:
            folder = f"{proc}/{pid}/task/{tid}"
            state = procfs.parse_stat(procfs.read(f"{folder}/stat", 4096)).state
            status = procfs.parse_status(procfs.read(f"{folder}/status"))
        except (OSError, ValueError):
            continue
        states.append(state)
        tracer = tracer or int(status.get(b"TracerPid", b"0"))
        pending = int(status.get(b"SigPnd", b"0"), 16)
        is_stopping = is_stopping or state == "T" or bool(pending & _SIGSTOP_BIT)
    if "D" in states:
        return Stops("D", tracer, is_stopping)
    return Stops(states[0] if states else "X", tracer, is_stopping)


def resume_if_stopped(proc: str, process: ProcessId, before: Stops) -> bool:
    """Undo what a tracer that died in the middle of attaching left behind.

    Attaching sends SIGSTOP, and the death of the tracer detaches: a SIGSTOP not yet taken by then
    really stops the process. SIGCONT undoes that and cancels one that is still on its way. It is
    sent only if such a stop is seen and there was none before.

    Returns:
        Whether SIGCONT was sent.
    """
    if before.is_stopping or before.tracer_pid:
        return False
    until_s = time.monotonic() + _SETTLE_S
    while True:
        stat = procfs.read_stat(proc, process.pid)
        if stat is None or stat.process != process:
            return False
        if stops_of(proc, process.pid).is_stopping:
            try:
                os.kill(process.pid, signal.SIGCONT)
            except OSError:
                return False
            return True
        if time.monotonic() > until_s:
            return False
        time.sleep(_PAUSE_S)
