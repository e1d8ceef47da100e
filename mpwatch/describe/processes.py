"""Processes in words: names (`worker 3`, `worker 3 (41829)`, `worker 0 of rank 3`) and states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import DASH
from mpwatch.model.waits import WaitEdge

ROLE_PLURALS: Mapping[Role, str] = {
    "loader-worker": "workers",
    "rank": "ranks",
    "pool-worker": "pool workers",
    "spawned": "spawned",
    "ray-worker": "ray workers",
}
"""Roles of which a job has many processes with comparable work."""
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


def role_name(role: Role, worker_id: int | None, rank: int | None) -> str:
    """The role with its number, if it has one: `worker 3`, `rank 1`, `main`.

    A `main` with a number is a rank that no launcher has started.
    """
    if role == "loader-worker" and worker_id is not None:
        return f"worker {worker_id}"
    if role in ("rank", "main") and rank is not None:
        return f"rank {rank}"
    return role


def full_name(process: Process) -> str:
    """Label and pid: `worker 3 (41829)`."""
    return f"{process.label} ({process.pid})"


def full_name_of(process: ProcessId | None, snapshot: Snapshot) -> str:
    """Label and pid: `worker 3 (41829)`; `pid N` for a process that the snapshot does not have."""
    if process is None:
        return DASH
    known = snapshot.get(process)
    return full_name(known) if known is not None else f"pid {process.pid}"


def unique_names(snapshot: Snapshot) -> dict[ProcessId, str]:
    """A name for each process that no other process has.

    Each rank has a worker 0, hence `worker 0 of rank 3`. A second `spawned` gets its pid appended,
    as does a worker of an earlier epoch.
    """
    parents = _parents(snapshot)
    labels = {
        process.process: (process.label, parents.get(process.process, ""))
        for process in snapshot.processes
    }
    living, all_processes = (
        Counter(
            key for process in processes for key in ((process.label, None), labels[process.process])
        )
        for processes in (snapshot.living(), snapshot.processes)
    )
    names = {}
    for process in snapshot.processes:
        label, parent = labels[process.process]
        count = all_processes if process.is_gone else living
        if count[label, None] == 1:
            names[process.process] = label
        elif parent and count[label, parent] == 1 and count[parent, None] == 1:
            names[process.process] = f"{label} of {parent}"
        else:
            names[process.process] = f"{label} {process.pid}"
    return names


def joined_names(
    processes: Sequence[ProcessId], names: Mapping[ProcessId, str], limit: int = 4
) -> str:
    """Several processes in one phrase: `worker 0, worker 1 and 5 more`.

    Args:
        processes: Their identities.
        names: From `unique_names`; a process that is not there is shown by its pid.
        limit: How many are named.
    """
    shown = [names.get(process, str(process.pid)) for process in processes[:limit]]
    more = len(processes) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _parents(snapshot: Snapshot) -> dict[ProcessId, str]:
    """The label of the present or former parent of each worker, where that is observed."""
    known = {process.process: process.label for process in snapshot.processes}
    return {
        process.process: known[parent]
        for process in snapshot.processes
        if process.sample.worker_id is not None
        for parent in (process.parent, process.original_parent)[::-1]
        if parent in known
    }


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
