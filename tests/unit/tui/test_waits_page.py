"""The names of processes on the page of waits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.samples import Frame
from mpwatch.model.waits import Verdict
from mpwatch.report.html import report_html
from mpwatch.report.text import diagnose_text
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import place, text_of
from mpwatch.tui.pages import waits
from tests.builders.screen_job import main_process
from tests.tui.scripted import loader_job
from tests.unit.tui.rows import row_text


@pytest.mark.parametrize("name", ["main", "main (7)", "main 7", "main 7 thread 9", "worker 77"])
def test_a_pid_is_shown_once(name: str) -> None:
    process = main_process().process._replace(pid=7)
    step = waits.WaitRow(("link",), process, 0, name, "waits for exit of 8")

    words = (
        row_text(waits.PAGE, step, SnapshotView(loader_job())).replace("(", " ").replace(")", " ")
    )

    assert words.split().count("7") == 1


@pytest.mark.parametrize("width", [58, 78, 120])
def test_the_wait_is_shown_at_every_width(width: int) -> None:
    assert [placed.column for placed in place(waits.COLUMNS, width)] == [0, 1, 2]


@pytest.mark.parametrize("length", [None, 1], ids=["chain", "one process"])
@pytest.mark.parametrize(
    ("verdict", "since_s", "watched_s", "is_shown"),
    [
        ("unknown", 1.0, 60.0, False),
        ("unknown", 0.2, 0.2, True),  # of a job that was only just looked at
        ("progress", 0.2, 0.2, False),
        ("progress", 1.9, 60.0, False),
        ("progress", 2.5, 60.0, True),
        ("unknown", 2.5, 60.0, True),
        ("cycle", 1.0, 60.0, True),
        ("dead-end", 1.0, 60.0, True),
    ],
)
def test_pages_and_reports_leave_out_what_processes_wait_for_in_passing(
    verdict: Verdict, since_s: float, watched_s: float, is_shown: bool, length: int | None
) -> None:
    job = loader_job()
    (chain,) = job.waits.chains
    links = tuple(replace(link, since_s=since_s) for link in chain.links[:length])
    graph = replace(job.waits, edges=(), chains=(replace(chain, links=links, verdict=verdict),))
    account = replace(job.account, since_s=job.at_s - watched_s, at_s=job.at_s, readings=2)
    job = replace(job, waits=graph, account=account, findings=())

    assert bool(waits.items(SnapshotView(job))) is is_shown
    assert ("WAITS" in diagnose_text(job)) is is_shown
    assert ("<h2>Waits</h2>" in report_html(job)) is is_shown


@pytest.mark.parametrize(("age_s", "is_shown"), [(3.0, True), (20.0, False)])
def test_a_stack_from_before_the_wait_is_not_shown_below_it(age_s: float, is_shown: bool) -> None:
    job = replace(loader_job(), findings=())
    main, *others = job.processes
    stack = (Frame("sleeps", "/home/u/service.py", 85),)
    at = replace(
        main.threads[0], stack=stack, stack_age_s=age_s, stack_at_s=job.at_s - age_s, waits_s=4.0
    )
    main = replace(main, threads=(at, *main.threads[1:]))
    view = SnapshotView(replace(job, processes=(main, *others)))
    row = waits.WaitRow(("link",), main.process, 0, "main", "waits for data on pipe 7")

    said = "\n".join(text_of(each) for each in waits.details(row, view, 100))

    assert ("service.py:85" in said.split("\n", 2)[-1]) is is_shown
    assert ("taken before this wait" in said) is not is_shown
