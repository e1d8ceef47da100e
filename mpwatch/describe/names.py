"""Names of processes: `worker 3`, `worker 3 (41829)`, `worker 0 of rank 3`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import DASH

ROLE_PLURALS: Mapping[Role, str] = {
    "loader-worker": "workers",
    "rank": "ranks",
    "pool-worker": "pool workers",
    "spawned": "spawned",
    "ray-worker": "ray workers",
}
"""Roles of which a job has many processes with comparable work."""


def role_name(role: Role, worker_id: int | None, rank: int | None) -> str:
    """The role with its number, if it has one: `worker 3`, `rank 1`, `main`."""
    if role == "loader-worker" and worker_id is not None:
        return f"worker {worker_id}"
    if role == "rank" and rank is not None:
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
