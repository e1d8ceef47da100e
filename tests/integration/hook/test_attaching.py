"""Attaching, during which garbage collection is postponed: what other threads and signals may do
then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Start
from tests.integration.hook.test_forks import THREADED

pytestmark = pytest.mark.slow


def test_a_child_that_another_thread_forks_meanwhile_collects_its_garbage(start: Start) -> None:
    program = start("hook_attaching.py", "forked", env=THREADED)

    assert program.wait() == 0, program.lines
    assert program.lines == ["in True collects True", "in True collects False", "codes [0]"]


def test_a_handler_that_raises_while_gc_is_disabled_does_not_leave_it_disabled(
    start: Start,
) -> None:
    program = start("hook_attaching.py", "struck")

    assert program.wait() == 0, program.lines
    assert program.lines == ["struck collects True", "in True True"]


def test_a_handler_that_raises_at_any_point_leaves_the_hook_attached_or_detached(
    start: Start, runtime: Path
) -> None:
    program = start("hook_attaching.py", "strikes")

    assert program.wait() == 0, program.lines
    assert program.lines == ["caught True half [0, 0]", "out True in True True", "tasks 1"]
    assert list((runtime / "mpwatch").iterdir()) == []
