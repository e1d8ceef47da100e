"""Every page as text at two usual sizes of terminals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from mpwatch.tui.app import MpwatchApp
from tests.tui import scripted
from tests.tui.golden_text import check_golden
from tests.tui.screen_text import screen_text

SIZES = ((80, 24), (120, 36))
PAGES = {
    "overview": "0",
    "threads": "1",
    "shm": "2",
    "files": "3",
    "loader": "4",
    "flows": "5",
    "waits": "6",
    "gpu": "7",
    "events": "8",
    "findings": "9",
}
Size = tuple[int, int]


Screens = Callable[[Size], Awaitable[dict[str, str]]]


@pytest.fixture(scope="module")
def screens_of_pages() -> Screens:
    """All pages of a job at a size, from one dashboard: starting it costs most of a test's time."""
    drawn: dict[Size, dict[str, str]] = {}

    async def at(size: Size) -> dict[str, str]:
        if size not in drawn:
            texts = {}
            app = MpwatchApp(scripted.ScriptedSource(scripted.loader_job()), title="train.py")
            async with app.run_test(size=size) as pilot:
                # The cursor of the page of files goes to the process of the page before it.
                for page in ("files", *(page for page in PAGES if page != "files")):
                    await pilot.press(PAGES[page])
                    await pilot.pause()
                    texts[page] = screen_text(app)
            drawn[size] = texts
        return drawn[size]

    return at


@pytest.mark.xdist_group("golden")  # one worker draws them
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("page", PAGES)
async def test_a_page_matches_its_golden_text(
    page: str, size: Size, screens_of_pages: Screens
) -> None:
    check_golden(f"{page}-{size[0]}x{size[1]}", (await screens_of_pages(size))[page])


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("world", ["healthy_job", "ended_job", "without_hook"])
async def test_other_states_of_the_job_match_their_golden_text(
    world: Literal["healthy_job", "ended_job", "without_hook"], size: Size
) -> None:
    app = MpwatchApp(scripted.ScriptedSource(getattr(scripted, world)()), title="train.py")
    async with app.run_test(size=size) as pilot:
        await pilot.pause()

        check_golden(f"{world}-{size[0]}x{size[1]}", screen_text(app))


async def test_help_matches_its_golden_text() -> None:
    app = MpwatchApp(scripted.ScriptedSource(scripted.loader_job()), title="train.py")
    async with app.run_test(size=(100, 44)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()

        check_golden("help-100x44", screen_text(app))


async def test_a_process_matches_its_golden_text() -> None:
    app = MpwatchApp(scripted.ScriptedSource(scripted.loader_job()), title="train.py")
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("down", "enter")
        await pilot.pause()

        check_golden("process-120x36", screen_text(app))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_gpus_match_their_golden_text(size: Size) -> None:
    app = MpwatchApp(scripted.ScriptedSource(scripted.gpu_job()), title="train.py")
    async with app.run_test(size=size) as pilot:
        await pilot.press("7")
        await pilot.pause()

        check_golden(f"gpu_job-{size[0]}x{size[1]}", screen_text(app))
