"""How often the garbage collector runs in a command."""

from __future__ import annotations

import gc
import weakref

import pytest

from mpwatch.cli import RUNNING, START, main, rarely_collected, set_aside_what_is_loaded


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_thresholds_are_restored_after_a_command() -> None:
    before = gc.get_threshold()
    gc.unfreeze()

    with rarely_collected():
        assert gc.get_threshold() == (START, *before[1:])
        set_aside_what_is_loaded()
        assert gc.get_threshold() == (RUNNING, *before[1:])
        assert gc.get_freeze_count() > 0

    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_cycles_made_while_a_dashboard_runs_are_collected() -> None:
    with rarely_collected():
        set_aside_what_is_loaded()
        lost = weakref.ref(Cycle())
        kept = [[] for _ in range(2 * RUNNING)]  # type: ignore[var-annotated]

        assert lost() is None
        assert kept


def test_a_command_of_its_own_process_leaves_nothing_to_collect_as_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = gc.get_threshold()
    left: list[str] = []
    monkeypatch.setattr("sys.argv", ["mpwatch", "ps"])
    monkeypatch.setattr(gc, "unfreeze", lambda: left.append("unfrozen"))

    try:
        assert main() == 0
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (START, *before[1:])
        assert left == []
        assert main(["ps"]) == 0
        assert left == ["unfrozen"], "a caller of main goes on"
    finally:
        monkeypatch.undo()
        gc.set_threshold(*before)
        gc.unfreeze()
