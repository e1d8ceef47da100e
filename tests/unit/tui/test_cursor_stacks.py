"""When the stacks of the process under the cursor are requested."""

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
    """A main process with a stack taken at that time."""
    process = main(threads=[Thread(MAIN, "MainThread", "S", stack=STACK, stack_at_s=stack_at_s)])
    return replace(process, sample=replace(process.sample, is_python=True, state="S"))


def test_a_recent_stack_is_not_requested_again() -> None:
    glance = CursorStacks()
    asked = [
        bool(glance.due(seen(stack_at_s=at_s - at_s % 10.0), at_s))
        for at_s in (100.0 + n for n in range(100))
    ]

    assert asked == [False, True, *[False] * 98]


def test_requests_become_rarer_while_the_cursor_does_not_move() -> None:
    glance, process = CursorStacks(), seen(stack_at_s=None)
    asked = [n for n in range(1200) if glance.due(process, 100.0 + n)]

    gaps = [later - earlier for earlier, later in pairwise(asked)]
    assert asked[0] == 1
    assert gaps == [OUTSIDE_S, 2 * OUTSIDE_S, 4 * OUTSIDE_S, *[OUTSIDE_LIMIT_S] * 4]


def test_after_a_cursor_movement_requests_are_as_frequent_as_at_first() -> None:
    glance, process = CursorStacks(), seen(stack_at_s=None)
    for n in range(300):
        glance.due(process, 100.0 + n)
    glance.due(None, 400.0)
    asked = [n for n in range(401, 500) if glance.due(process, float(n))]

    assert asked == [402, 402 + OUTSIDE_S, 402 + 3 * OUTSIDE_S]


def test_the_first_request_for_a_process_does_not_depend_on_the_age_of_its_stack() -> None:
    glance, process = CursorStacks(), seen(stack_at_s=99.0)
    glance.due(process, 100.0)

    assert glance.due(process, 101.0) == TakeStacks(process.process)
