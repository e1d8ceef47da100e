"""When stacks of the process under the cursor are taken."""

from __future__ import annotations

from itertools import pairwise

from msgspec.structs import replace

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import HookState
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.source import TakeStacks
from mpwatch.observe.sources.stack_schedule import (
    FOCUS_HOOKED_S,
    FOCUS_LIMIT_S,
    FOCUS_S,
    StackRequest,
    StackSchedule,
)
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, sample, tree


def seen(at_s: float, hook: HookState = "absent", state: str = "S") -> Snapshot:
    fold = Fold()
    fold.apply(tree(at_s, replace(sample(MAIN, at_s, state=state), is_python=True)))
    fold.apply(HookStatus(MAIN, at_s, hook))
    return fold.snapshot()


def focused() -> StackSchedule:
    schedule = StackSchedule()
    schedule.focus(MAIN)
    return schedule


def test_the_cursor_must_stay_on_a_process_for_one_reading() -> None:
    schedule = focused()

    assert schedule.due(seen(100.0)) == []
    assert schedule.due(seen(101.0)) == [StackRequest(MAIN)]


def test_stacks_are_taken_again_ever_more_rarely_while_the_cursor_stays() -> None:
    schedule = focused()
    due = [n for n in range(1200) if schedule.due(seen(100.0 + n))]

    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert due[0] == 1
    assert gaps == [FOCUS_S, 2 * FOCUS_S, 4 * FOCUS_S, *[FOCUS_LIMIT_S] * 4]


def test_a_cursor_that_was_moved_begins_with_short_intervals() -> None:
    schedule = focused()
    for n in range(300):
        schedule.due(seen(100.0 + n))
    schedule.focus(None)
    schedule.due(seen(400.0))
    schedule.focus(MAIN)
    due = [n for n in range(401, 500) if schedule.due(seen(float(n)))]

    assert due == [402, 402 + FOCUS_S, 402 + 3 * FOCUS_S]


def test_stacks_taken_recently_for_another_reason_are_not_taken_again() -> None:
    schedule, due = focused(), []
    for n in range(100):
        if n % 10 == 0:
            schedule.request(TakeStacks(MAIN))
            schedule.due_between(seen(100.0 + n), 100.0 + n)
        due += [n] * len(schedule.due(seen(100.0 + n)))

    assert due == [1]


def test_the_first_stacks_are_taken_at_once_however_recent_the_last_ones_are() -> None:
    schedule = focused()
    schedule.due(seen(100.0))
    schedule.request(TakeStacks(MAIN))
    schedule.due_between(seen(100.5), 100.5)

    assert schedule.due(seen(101.0)) == [StackRequest(MAIN)]


def test_a_process_with_a_hook_is_asked_more_often() -> None:
    schedule = focused()
    due = [n for n in range(20) if schedule.due(seen(100.0 + n, "ready"))]

    assert due == [1, *(1 + FOCUS_HOOKED_S * n for n in range(1, 7))]


def test_a_process_that_cannot_be_stopped_or_is_being_injected_is_left_alone() -> None:
    schedule = focused()
    schedule.due(seen(100.0))

    assert schedule.due(seen(101.0, state="D")) == []
    assert schedule.due(seen(102.0), {MAIN}) == []
    assert schedule.due(seen(103.0)) == [StackRequest(MAIN)]
