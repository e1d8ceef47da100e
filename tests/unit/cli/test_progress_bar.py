"""A bar on standard error, only where a person waits for it."""

from __future__ import annotations

import io

import pytest

from mpwatch.cli.terminal import BAR_CELLS, ProgressBar


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


def test_after_a_second_it_shows_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(monkeypatch, Terminal(), (0.5, 0.1), (2.0, 0.5), (2.1, 0.6), (3.0, 1.5))

    half, whole = "#" * (BAR_CELLS // 2) + "." * (BAR_CELLS // 2), "#" * BAR_CELLS
    assert lines.split("\r\x1b[K") == [
        "",
        f"reading job.mpw [{half}] 50%, 2 s left",
        f"reading job.mpw [{whole}] 100%, 0 s left",
        "",
    ]


def test_what_takes_less_than_a_second_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, Terminal(), (0.1, 0.1), (0.9, 0.9)) == ""


def test_where_nobody_looks_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, io.StringIO(), (5.0, 0.5)) == ""
