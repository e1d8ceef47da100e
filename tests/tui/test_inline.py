"""The status of a few lines that stays in the scrollback."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.cli.dashboards import watch
from mpwatch.collect.process.procfs import stat_of
from mpwatch.tui.elements.header import ViewSettings
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import text_of, width_of
from mpwatch.tui.inline import LAST_PAINT_S, MOST_ROWS, InlineApp, status_lines
from tests.tui import scripted
from tests.tui.golden_text import check_golden
from tests.tui.screen_text import screen_text
from tests.tui.scripted import ScriptedSource, loader_job

VIEWING = ViewSettings("train.py", 1.0)


@pytest.mark.parametrize("width", [80, 120])
def test_the_inline_status_matches_its_golden_text(width: int) -> None:
    lines = status_lines(SnapshotView(loader_job()), VIEWING, width, 24)

    check_golden(f"inline-{width}", "\n".join(text_of(line).rstrip() for line in lines))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_of_the_status_is_wider_than_the_terminal(width: int) -> None:
    lines = status_lines(SnapshotView(loader_job()), VIEWING, width, 24)

    assert all(width_of(line) <= width for line in lines)


def test_many_processes_are_cut_to_the_worst_and_the_rest_is_counted() -> None:
    lines = [text_of(x) for x in status_lines(SnapshotView(scripted.crowd(64)), VIEWING, 120, 50)]

    assert "  and 57 more processes" in lines
    assert len(lines) <= MOST_ROWS + 6


def test_a_low_terminal_shows_fewer_processes() -> None:
    low = status_lines(SnapshotView(scripted.crowd(64)), VIEWING, 120, 12)

    assert len(low) < 12


async def test_the_lines_are_updated_and_q_quits() -> None:
    source = ScriptedSource(scripted.healthy_job())
    app = InlineApp(source, title="train.py")
    async with app.run_test(size=(120, 20)) as pilot:
        await pilot.pause()
        assert "healthy nothing wrong found" in screen_text(app)
        source.push(loader_job())
        await pilot.pause()
        assert "CRITICAL main reaches its limit" in screen_text(app)
        await pilot.press("q")
        await pilot.pause(LAST_PAINT_S)
        await pilot.pause()

    assert source.is_stopped
    assert app.return_value == 0


async def test_the_status_ends_with_the_job_and_shows_its_exit_status() -> None:
    source = ScriptedSource(loader_job())
    app = InlineApp(source, title="train.py")
    async with app.run_test(size=(120, 20)) as pilot:
        await pilot.pause()
        source.push(replace(scripted.ended_job(), mode="ended"))
        await pilot.pause()
        text = screen_text(app)
        await pilot.pause(LAST_PAINT_S)
        await pilot.pause()

    assert "ENDED main (41823): signal 7 (SIGBUS)" in text
    assert app.return_value == 0


def test_an_inline_status_whose_terminal_was_lost_before_its_start_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would go on without a user until the end of the job."""
    run = InlineApp.run

    def run_headless(self: InlineApp, **_options: Any) -> int | None:
        return run(self, headless=True)

    monkeypatch.setattr(InlineApp, "run", run_headless)
    monkeypatch.setattr("mpwatch.tui.termination.os.isatty", lambda _: False)
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
    try:
        code = watch(stat_of(job.pid).process, refresh_hz=10.0, inline=True)
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()
    assert code == 128 + signal.SIGHUP
