"""Moving through a recording."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.snapshot import Playback, Snapshot
from mpwatch.observe.sources.source import Seek, SetSpeed, Step
from mpwatch.tui.app import MpwatchApp
from tests.tui.scripted import ScriptedSource, loader_job

pytestmark = pytest.mark.slow

SIZE = (120, 36)


def replayed() -> Snapshot:
    at = Playback(at_s=62.0, length_s=600.0, speed=2.0)
    return replace(loader_job(), mode="replay", playback=at)


async def test_a_replay_can_step_seek_and_change_its_speed() -> None:
    source = ScriptedSource(replayed(), is_live=False)
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("full_stop", "comma", "right_square_bracket", "left_square_bracket")
        await pilot.press("plus", "minus")

    wanted = [Step(1), Step(-1), Seek(72.0), Seek(62.0), SetSpeed(4.0), SetSpeed(2.0)]
    assert source.asked == wanted


async def test_a_key_counts_from_the_key_before_until_the_replay_has_followed_it() -> None:
    at = Playback(at_s=62.0, length_s=600.0)
    before = replace(replayed(), playback=at)
    source = ScriptedSource(before, is_live=False)
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("right_square_bracket")
        source.push(before)  # was on its way
        await pilot.pause()
        await pilot.press("right_square_bracket")
        source.push(replace(before, playback=replace(at, at_s=72.0, followed=1)))
        await pilot.pause()
        await pilot.press("right_square_bracket")
        source.push(replace(before, playback=replace(at, at_s=93.0, followed=3)))
        await pilot.pause()
        await pilot.press("right_square_bracket")

    assert source.asked == [Seek(72.0), Seek(82.0), Seek(92.0), Seek(103.0)]


async def test_a_replay_seeks_to_the_start_of_a_finding() -> None:
    source = ScriptedSource(replayed(), is_live=False)
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.dashboard.overview.findings_table.focus()
        await pilot.press("enter", "t")
        await pilot.pause()

    assert source.asked == [Seek(22.0)]


async def test_keys_of_a_replay_do_nothing_on_a_running_job() -> None:
    source = ScriptedSource(loader_job())
    app = MpwatchApp(source)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await pilot.press("full_stop", "right_square_bracket", "plus")

    assert not [c for c in source.asked if isinstance(c, (Step, Seek, SetSpeed))]
