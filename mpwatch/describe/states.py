"""States of processes and threads in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mpwatch.model.snapshot import Process
from mpwatch.model.waits import WaitEdge

STATE_WORDS: Mapping[str, str] = {
    "R": "running",
    "S": "sleeping",
    "D": "I/O wait",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "X": "dead",
    "x": "dead",
    "I": "idle",
}
"""By the letter in `/proc/PID/stat`, see proc_pid_stat(5); at most eight characters."""

_EXPLANATIONS: Mapping[str, str] = {
    "D": "in uninterruptible I/O",
    "T": "stopped by a signal",
    "t": "stopped by a tracer",
    "Z": "zombie: has exited, not reaped by its parent",
}
BUSY_PERCENT = 20.0
"""A sleeping process that used this much of a core since the last sample is running."""


def state_word(letter: str) -> str:
    """The word for a state letter of `/proc/PID/stat`; an unknown letter as it is."""
    return STATE_WORDS.get(letter, letter or "unknown")


def state_explanation(letter: str) -> str:
    """The state in a few words, for lines with room: `stopped by a signal`."""
    return _EXPLANATIONS.get(letter) or state_word(letter)


def process_state(process: Process, waits: Iterable[WaitEdge]) -> str:
    """The state of a process in one word, from its waits if known, else from the kernel.

    `idle` waits for work by design, `waiting` for something that is due.

    Args:
        process: The process.
        waits: Its waits in the wait graph.
    """
    if process.is_gone:
        return "ended"
    letter = process.sample.state
    if letter != "S":
        return state_word(letter)
    main = [edge for edge in waits if edge.tid == process.pid]
    if main:
        return "idle" if all(edge.is_ordinary for edge in main) else "waiting"
    return "running" if (process.cpu_percent or 0) >= BUSY_PERCENT else "sleeping"
