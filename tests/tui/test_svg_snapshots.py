"""Whole screens with their colours, as pictures; text alone is in `golden`."""

from __future__ import annotations

from typing import Any

import pytest

from mpwatch.tui.app import MpwatchApp
from tests.tui import scripted
from tests.tui.scripted import ScriptedSource
from tests.tui.versions import is_pinned

pytestmark = pytest.mark.skipif(
    not (is_pinned("textual") and is_pinned("rich")),
    reason="pictures were approved with the textual and rich that pyproject.toml pins",
)

SIZE = (100, 26)


def dashboard(world: str = "loader_job", theme: str = "textual-dark") -> MpwatchApp:
    app = MpwatchApp(ScriptedSource(getattr(scripted, world)()), title="train.py")
    app.theme = theme
    return app


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "ansi-dark"])
def test_the_overview_matches_its_picture(theme: str, snap_compare: Any) -> None:
    assert snap_compare(dashboard(theme=theme), terminal_size=SIZE)


def test_the_overview_without_colours_matches_its_picture(
    monkeypatch: pytest.MonkeyPatch, snap_compare: Any
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    assert snap_compare(dashboard(), terminal_size=SIZE)


@pytest.mark.parametrize(
    "keys", [["4"], ["5"], ["6"], ["x"]], ids=["loader", "flows", "waits", "acting"]
)
def test_a_page_matches_its_picture(keys: list[str], snap_compare: Any) -> None:
    assert snap_compare(dashboard(), press=keys, terminal_size=SIZE)


def test_a_killed_job_matches_its_picture(snap_compare: Any) -> None:
    assert snap_compare(dashboard("ended_job"), terminal_size=SIZE)
