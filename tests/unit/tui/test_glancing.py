"""What a cursor that rests on a process asks for, and what is known already."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from mpwatch.model.commands import TakeStacks
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.tui.view_state import OUTSIDE_LIMIT_S, OUTSIDE_S, CursorStacks
from tests.unit.diagnose.worlds import MAIN, main

STACK = (Frame("work", "train.py", 3),)


def seen(stack_at_s: float | None) -> Process:
    """A main process whose stack was taken then."""
    process = main(threads=[Thread(MAIN, "MainThread", "S", stack=STACK, stack_at_s=stack_at_s)])
    return replace(process, sample=replace(process.sample, is_python=True, state="S"))


def test_a_stack_that_was_taken_lately_for_another_reason_is_not_taken_again() -> None:
    glance = CursorStacks()
    asked = [
        bool(glance.due(seen(stack_at_s=at_s - at_s % 10.0), at_s))
        for at_s in (100.0 + n for n in range(100))
    ]

    assert asked == [False, True, *[False] * 98]


def test_one_that_nobody_else_looks_at_is_taken_again_and_again_but_ever_more_rarely() -> None:
    glance, process = CursorStacks(), seen(stack_at_s=None)
    asked = [n for n in range(1200) if glance.due(process, 100.0 + n)]

    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert asked[0] == 1
    assert gaps == [OUTSIDE_S, 2 * OUTSIDE_S, 4 * OUTSIDE_S, *[OUTSIDE_LIMIT_S] * 4]


def test_a_cursor_that_was_moved_asks_as_often_as_at_first() -> None:
    glance, process = CursorStacks(), seen(stack_at_s=None)
    for n in range(300):
        glance.due(process, 100.0 + n)
    glance.due(None, 400.0)
    asked = [n for n in range(401, 500) if glance.due(process, float(n))]

    assert asked == [402, 402 + OUTSIDE_S, 402 + 3 * OUTSIDE_S]


def test_the_first_rest_of_a_cursor_asks_at_once_however_fresh_the_stack_is() -> None:
    glance, process = CursorStacks(), seen(stack_at_s=99.0)
    glance.due(process, 100.0)

    assert glance.due(process, 101.0) == TakeStacks(process.process)
