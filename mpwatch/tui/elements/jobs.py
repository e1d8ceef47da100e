"""Running torch jobs to choose from."""

from __future__ import annotations

from collections import Counter

from mpwatch.collect.job.jobs import Job
from mpwatch.model.cmdline import python_program
from mpwatch.model.units import bytes_text, seconds_text
from mpwatch.tui.elements.styled_text import Column, Line, Row, cell, cut, line

COLUMNS = (
    Column("PID", 7, align="right", keep=9),
    Column("PROGRAM", 20, keep=8, most=28),
    Column("PROCESSES", 9, align="right", keep=7),
    Column("HOOK", 5, keep=6),
    Column("RESIDENT", 8, align="right", keep=5),
    Column("RUNNING FOR", 11, align="right", keep=4),
    Column("COMMAND", 20, keep=8, grows=True),
)
EMPTY = (
    "No torch job that this user may read is running here.",
    "A Python process that has imported torch appears by itself, within two seconds.",
    "Jobs of other users need the same user or root: try `sudo mpwatch`.",
    "To start one with the hook: mpwatch run train.py     To try an example: mpwatch demo",
)


def job_row(job: Job, wall_s: float) -> Row:
    """One job of the picker.

    Args:
        job: The job.
        wall_s: The current time in seconds since the epoch; ages refer to it.
    """
    root = job.root
    age = None if root.born_wall_s is None else max(0.0, wall_s - root.born_wall_s)
    hooked = sum(process.has_hook for process in job.processes)
    command = " ".join(root.cmdline)
    return Row(
        root.process,
        (
            cell(str(root.process.pid)),
            cell(python_program(root.cmdline).name or root.name, "title"),
            cell(str(len(job.processes))),
            cell(str(hooked) if hooked else "no", "good" if hooked else "dim"),
            cell(bytes_text(sum(process.rss_bytes for process in job.processes))),
            cell(seconds_text(age)),
            cell(command, "dim"),
        ),
    )


def job_details(job: Job, width: int) -> tuple[Line, ...]:
    """The job under the cursor: roles of its processes, and its whole command."""
    roles = Counter(process.role for process in job.processes)
    words = ", ".join(f"{count} {role}" for role, count in roles.most_common())
    first = line((f" {job.root.process.pid}  ", "title"), words)
    return (cut(first, width), cut(cell("  " + " ".join(job.root.cmdline), "dim"), width))
