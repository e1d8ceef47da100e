"""Progress on standard error."""

from __future__ import annotations

import io
import os

import pytest

from mpwatch.cli.terminal import BAR_CELLS, Progress, ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, error: io.StringIO, *steps: tuple[float, float]) -> str:
    now_s = 0.0
    monkeypatch.setattr("sys.stderr", error)
    with ProgressBar("reading job.mpw", clock=lambda: now_s) as bar:
        for now_s, part in steps:  # noqa: B007 - the clock reads it
            bar.update(part)
    return error.getvalue()


def test_after_a_second_the_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(monkeypatch, Terminal(), (0.5, 0.1), (2.0, 0.5), (2.1, 0.6), (3.0, 1.5))

    half, whole = "#" * (BAR_CELLS // 2) + "." * (BAR_CELLS // 2), "#" * BAR_CELLS
    assert lines.split("\r\x1b[K") == [
        "",
        f"reading job.mpw [{half}] 50%, 2 s left",
        f"reading job.mpw [{whole}] 100%, 0 s left",
        "",
    ]


def test_a_task_shorter_than_a_second_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, Terminal(), (0.1, 0.1), (0.9, 0.9)) == ""


def test_without_a_terminal_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, io.StringIO(), (5.0, 0.5)) == ""


def test_the_line_of_an_activity_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    error = Terminal()
    monkeypatch.setattr("sys.stderr", error)

    with Progress("watching 42", 5.0) as progress:
        progress.show("3 processes")

    assert error.getvalue().split("\r\x1b[K") == [
        *("", "watching 42: 0 of 5 s  ", "watching 42: 0 of 5 s  3 processes", ""),
    ]


def test_a_line_that_would_wrap_is_cut_so_that_it_can_be_drawn_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = Terminal()
    monkeypatch.setattr("sys.stderr", error)
    monkeypatch.setattr(error, "fileno", lambda: 2)
    monkeypatch.setattr("os.get_terminal_size", lambda fd: os.terminal_size((80, 24)))

    with Progress("watching 42") as progress:
        progress.show("rank 0 has made no progress for 20 s; watching up to 35 s, ctrl-c to stop")

    drawn = error.getvalue().split("\r\x1b[K")
    assert max(map(len, drawn)) == 79
    assert drawn[2].endswith("…")
