"""The pictures of the documents are there, and the screens keep their colours and layout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpwatch.demo import catalogue
from mpwatch.tui.app import MpwatchApp
from screenshots.make import SHOTS
from tests.tui.scripted import ScriptedSource, loader_job
from tests.tui.versions import ANSI_THEME

ROOT = Path(__file__).parents[2]


def test_every_picture_is_shown_and_every_shown_one_exists_and_can_be_made_again() -> None:
    gallery = (ROOT / "screenshots" / "README.md").read_text()
    shown = set(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", gallery))
    first = re.findall(r"!\[[^\]]+\]\(screenshots/([^)]+)\)", (ROOT / "README.md").read_text())

    assert shown == {f"{shot.name}.png" for shot in SHOTS}
    assert len(first) == 1
    assert set(first) <= shown
    assert [name for name in shown if not (ROOT / "screenshots" / name).is_file()] == []


def test_every_picture_is_of_a_demonstration_that_exists() -> None:
    for shot in SHOTS:
        assert catalogue.find(shot.scenario).name == shot.scenario


@pytest.mark.parametrize("name", [shot.name for shot in SHOTS])
def test_pictures_are_kept_in_both_forms(name: str) -> None:
    folder = ROOT / "screenshots"

    assert (folder / f"{name}.svg").read_text().lstrip().startswith("<svg")
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


THEMES = ("textual-dark", "textual-light", ANSI_THEME)


@pytest.mark.parametrize("theme", THEMES)
async def test_critical_findings_have_their_colour_in_every_theme(theme: str) -> None:
    app = MpwatchApp(ScriptedSource(loader_job()), title="train.py")
    async with app.run_test(size=(120, 36)) as pilot:
        app.theme = theme
        await pilot.pause()
        finding_line = app.dashboard.overview.findings_table
        segments = list(finding_line.render_line(0))
        critical = next(s for s in segments if s.text.lstrip().startswith("CRITICAL"))
        plain = next(s for s in segments if s.text.lstrip().startswith("main reaches"))

    assert critical.style is not None
    assert plain.style is not None
    assert critical.style.color != plain.style.color
    assert critical.style.bold


@pytest.mark.parametrize("theme", THEMES)
async def test_the_cursor_is_visible_in_every_theme(theme: str) -> None:
    app = MpwatchApp(ScriptedSource(loader_job()), title="train.py")
    async with app.run_test(size=(120, 36)) as pilot:
        app.theme = theme
        await pilot.pause()
        table = app.dashboard.overview.table
        under = next(iter(table.render_line(1))).style
        beside = next(iter(table.render_line(3))).style

    assert under is not None
    assert beside is not None
    assert (under.bgcolor, under.reverse) != (beside.bgcolor, beside.reverse)


async def test_without_colours_the_cursor_is_reversed_and_words_remain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = MpwatchApp(ScriptedSource(loader_job()), title="train.py")
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause()
        table = app.dashboard.overview.table
        under = next(iter(table.render_line(1))).style
        text = table.render_line(1).text

    assert under is not None
    assert under.reverse
    assert text.startswith("C>v 41823 main")
    assert "waiting" in text
