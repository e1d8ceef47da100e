"""The pages that compare two snapshots and show sampled stacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.pages import compare
from mpwatch.tui.pages.stacks import flame
from tests.builders.screen_job import NOW_S
from tests.tui.scripted import loader_job


def test_comparing_shows_growth_and_started_and_ended_processes() -> None:
    before = loader_job()
    kept = before.processes[:-1]
    newcomer = replace(kept[1], process=ProcessId(50000, 1))
    after = replace(before, at_s=NOW_S + 30, processes=(*kept, newcomer))

    found = {pair.process: pair for pair in compare.pairs(before, after)}

    assert found[ProcessId(50000, 1)].before is None
    assert found[ProcessId(41840, 940)].after is None
    assert "30 s earlier, processes" not in text_of(compare.head(before, after))
    assert "processes started 1, ended 1" in text_of(compare.head(before, after))


@pytest.mark.parametrize(("value", "words"), [(None, "-"), (0, "="), (5, "+5"), (-5, "-5")])
def test_changes_carry_their_sign(value: int | None, words: str) -> None:
    assert compare.signed(value) == words


def sampled(*names: str, at_s: float = 0.0) -> flame.Sampled:
    return flame.Sampled(at_s, tuple(Frame(name, f"/x/{name}.py", 1) for name in reversed(names)))


def test_blocks_of_the_flame_graph_are_as_wide_as_their_share() -> None:
    samples = [sampled("run", "load")] * 3 + [sampled("run", "train")]

    lines = [text_of(found) for found in flame.picture(samples, 80)]

    assert lines[-1].index("train 25%") == 61
    assert " load 75%" in lines[-1]


def test_the_hottest_function_is_innermost_in_most_samples() -> None:
    samples = [sampled("run", "load")] * 3 + [sampled("run", "train", "load")]

    found = flame.hottest(samples)

    assert (found[0].place.function, found[0].own, found[0].total) == ("load", 4, 4)
    assert (found[1].place.function, found[1].own, found[1].total) == ("run", 0, 4)


def test_a_recursive_function_is_counted_once_per_sample() -> None:
    found = flame.hottest([sampled("walk", "walk", "walk")])

    assert found[0].total == 1
