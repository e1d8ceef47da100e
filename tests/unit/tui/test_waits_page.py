"""The names of processes on the page of waits."""

from __future__ import annotations

import pytest

from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import place
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
