"""`mpwatch` alone: choose one of the torch jobs that run on this machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from mpwatch.collect.job.jobs import Job, JobProcess
from mpwatch.describe.processes import role_name, state_word
from mpwatch.model.cmdline import job_program, job_words
from mpwatch.model.ids import ProcessId
from mpwatch.model.units import bytes_text, seconds_text
from mpwatch.tui.elements.page import state_tone
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, cell, cut, line
from mpwatch.tui.widgets.line_view import LineView, TonedApp
from mpwatch.tui.widgets.live_table import LiveTable

FindJobs: TypeAlias = Callable[[], Sequence[Job]]
REFRESH_S = 2.0


class PickerApp(TonedApp[ProcessId]):
    """A list of jobs, refreshed every other second; returns the root of the chosen job or `None`.

    Args:
        find: Finds running jobs; called repeatedly on a worker thread.
        wall_clock: Seconds since the epoch.
    """

    TITLE = "mpwatch"
    CSS_PATH = "dashboard.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "quit", "Quit", id="quit"),
        Binding("r", "search", "Search again", id="search"),
    ]

    class Found(Message):
        """The machine was searched for jobs."""

        def __init__(self, jobs: Sequence[Job]) -> None:
            super().__init__()
            self.jobs = jobs

    class NotFound(Message):
        """The search failed."""

        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    def __init__(self, find: FindJobs, *, wall_clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._find = find
        self._wall_clock = wall_clock
        self._top = LineView(classes="bar")
        self._table: LiveTable[Job] = LiveTable(COLUMNS, lambda job: job.root.process)
        self._empty = LineView(classes="sheet")
        self._details = LineView(classes="details")

    def compose(self) -> ComposeResult:
        """Head line, jobs, details of the selected job, keys."""
        yield self._top
        yield self._table
        yield self._empty
        yield self._details
        yield (keys := LineView(classes="bar"))
        keys.show((cell(" up down choose   enter watch   r search again   q quit", "dim"),))

    def on_mount(self) -> None:
        """Search now, then every other second."""
        self._details.styles.height = 2
        self._empty.display = False
        self._top.show((line((" mpwatch", "title"), "   looking for torch jobs"),))
        self._table.focus()
        self.action_search()
        self.set_interval(REFRESH_S, self.action_search)

    def action_search(self) -> None:
        """Search for jobs on a worker thread."""
        self.run_worker(self._search, thread=True, exclusive=True, group="search")

    def _search(self) -> None:
        try:
            self.post_message(self.Found(list(self._find())))
        except OSError as error:
            self.post_message(self.NotFound(str(error)))

    def on_picker_app_found(self, message: Found) -> None:
        """Show what was found; the cursor stays on its job."""
        jobs = in_order(message.jobs)
        count = f"{len(jobs)} torch job{'' if len(jobs) == 1 else 's'} on this machine"
        self._top.show((line((" mpwatch", "title"), f"   {count}"),))
        self._table.display = bool(jobs)
        self._details.display = bool(jobs)
        self._empty.display = not jobs
        if not jobs:
            first, *rest = EMPTY
            self._empty.show((cell(first, "title"), *(cell(words, "dim") for words in rest)))
        wall_s = self._wall_clock()
        self._table.show(jobs, lambda job: job_row(job, wall_s))
        self._draw_details()

    def on_picker_app_not_found(self, message: NotFound) -> None:
        """Show why the search failed."""
        self._top.show((line((" mpwatch", "title"), (f"   {message.reason}", "critical")),))

    def on_live_table_moved(self, message: LiveTable.Moved) -> None:
        """Explain the job under the cursor."""
        self._draw_details()

    def _draw_details(self) -> None:
        job = self._table.current
        self._details.show(job_details(job, self.size.width) if job else ())

    def on_live_table_chosen(self, message: LiveTable.Chosen) -> None:
        """End with the job that was chosen."""
        job = self._table.current
        if job is not None:
            self.exit(job.root.process)


def pick(find: FindJobs) -> ProcessId | None:
    """Let the user choose a job.

    Args:
        find: Looks for running jobs.

    Returns:
        The root of the chosen job, or `None` if the user quit.
    """
    return PickerApp(find).run()


COLUMNS = (
    ScreenColumn("PID", 7, align="right", keep=9),
    ScreenColumn("PROGRAM", 20, keep=8, most=28),
    ScreenColumn("STATE", 8, keep=7),
    ScreenColumn("AGE", 7, align="right", keep=7),
    ScreenColumn("PROCESSES", 9, align="right", keep=5),
    ScreenColumn("HOOK", 5, keep=6),
    ScreenColumn("RESIDENT", 8, align="right", keep=4),
    ScreenColumn("COMMAND", 20, keep=8, grows=True),
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
    return Row(
        root.process,
        (
            cell(str(root.process.pid)),
            cell(_program(root), "title"),
            cell(state := _state(job), state_tone(state)),
            cell(seconds_text(age)),
            cell(str(len(job.processes))),
            cell(str(hooked) if hooked else "no", "good" if hooked else "dim"),
            cell(bytes_text(sum(process.rss_bytes for process in job.processes))),
            cell(job_words(root.cmdline), "dim"),
        ),
    )


def in_order(jobs: Sequence[Job]) -> list[Job]:
    """Jobs that run torch, newest first, then others."""
    return sorted(
        jobs,
        key=lambda job: (
            any(each.has_torch for each in job.processes),
            job.root.process.start_ticks,
        ),
        reverse=True,
    )


def _program(root: JobProcess) -> str:
    """What the user wrote; a process of multiprocessing without its parent is named by its role."""
    program = job_program(root.cmdline)
    if program.kind == "code" and root.role != "main":
        return role_name(root.role, root.worker_id, root.rank)
    return program.name or root.name


def _state(job: Job) -> str:
    """The state of the job: running if one of its processes is."""
    states = {process.state for process in job.processes}
    return state_word(next((each for each in "RD" if each in states), job.root.state))


def job_details(job: Job, width: int) -> tuple[Line, ...]:
    """The job under the cursor: roles of its processes, and its whole command."""
    roles = Counter(process.role for process in job.processes)
    words = ", ".join(f"{count} {role}" for role, count in roles.most_common())
    first = line((f" {job.root.process.pid}  ", "title"), words)
    return (cut(first, width), cut(cell("  " + job_words(job.root.cmdline), "dim"), width))
