"""What most workers or ranks of a job do, and which of them do something else."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.stacks import MergedStacks, merge
from mpwatch.model.ids import Role
from mpwatch.model.snapshot import Snapshot
from mpwatch.report.table import Paper

CROWD = 3
"""Two processes are told one by one."""
_CALLED: dict[Role, str] = {
    "loader-worker": "workers",
    "rank": "ranks",
    "pool-worker": "pool workers",
    "spawned": "spawned",
}


def crowds(snapshot: Snapshot) -> Iterator[tuple[str, MergedStacks]]:
    """The stacks of each role that many have, merged, under what such processes are called."""
    for role, called in _CALLED.items():
        merged = merge(process for process in snapshot.living() if process.role == role)
        if merged.total >= CROWD:
            yield called, merged


def crowd_lines(snapshot: Snapshot, paper: Paper) -> list[str]:
    """One sentence a role: `workers: 62 of 64 wait for work in Queue.get; 3 and 17 in ...`."""
    lines: list[str] = []
    for called, merged in crowds(snapshot):
        lines += paper.wrap(f"{called}: {merged.sentence}", "  ", "    ")
    return lines
