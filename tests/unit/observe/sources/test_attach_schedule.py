from __future__ import annotations

from msgspec.structs import replace

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import HookState
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.attach_schedule import INJECT_AGAIN_S, UNDER_WAY_S, AttachSchedule
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, sample, tree


def seen(at_s: float, state: HookState) -> Snapshot:
    fold = Fold()
    fold.apply(tree(at_s, replace(sample(MAIN, at_s), is_python=True)))
    fold.apply(HookStatus(MAIN, at_s, state))
    return fold.snapshot()


def planned(*looks: tuple[float, HookState]) -> list[tuple[int, int]]:
    """How many processes are injected for the first time, and how many are checked again."""
    schedule = AttachSchedule()
    return [tuple(map(len, schedule.due(seen(*look)))) for look in looks]  # type: ignore[misc]


def test_a_process_without_a_hook_gets_it_once() -> None:
    assert planned((1.0, "absent"), (2.0, "absent"), (99.0, "absent")) == [(1, 0), (0, 0), (0, 0)]


def test_a_process_whose_hook_was_detached_is_not_injected_again() -> None:
    assert planned((1.0, "ready"), (2.0, "absent"), (99.0, "absent")) == [(0, 0)] * 3


def test_a_pending_hook_is_checked_at_intervals() -> None:
    looks = [(1.0, "absent"), *((1.0 + n * INJECT_AGAIN_S / 4, "pending") for n in range(1, 10))]

    found = planned(*looks)  # type: ignore[arg-type]

    assert found[0] == (1, 0)
    assert [again for _, again in found[1:]] == [0, 0, 0, 1, 0, 0, 0, 1, 0]


def test_a_process_with_a_temporary_obstacle_is_tried_again() -> None:
    schedule = AttachSchedule()
    assert len(schedule.due(seen(1.0, "absent"))[0]) == 1
    schedule.received(
        HookStatus(MAIN, 1.1, "absent", "process 7 (gdb) traces it already", passes=True)
    )

    found = [
        len(schedule.due(seen(at_s, "absent"))[0]) for at_s in (2.0, 1.0 + INJECT_AGAIN_S, 90.0)
    ]

    assert found == [0, 1, 0]


def test_a_process_that_was_refused_permanently_is_not_tried_again() -> None:
    schedule = AttachSchedule()
    schedule.due(seen(1.0, "absent"))
    schedule.received(HookStatus(MAIN, 1.1, "absent", "its Python is free-threaded"))
    assert schedule.due(seen(1.0 + INJECT_AGAIN_S, "absent")) == ([], [])


def test_an_injection_is_under_way_until_its_result_or_for_two_seconds() -> None:
    schedule = AttachSchedule()
    assert schedule.under_way(1.0) == frozenset()
    schedule.due(seen(1.0, "absent"))
    assert schedule.under_way(1.0) == schedule.under_way(0.9 + UNDER_WAY_S) == {MAIN}
    assert schedule.under_way(1.0 + UNDER_WAY_S) == frozenset()
    schedule.received(HookStatus(MAIN, 1.5, "ready"))
    assert schedule.under_way(1.6) == frozenset()
