from __future__ import annotations

from dataclasses import replace

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import HookState
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.bringing import AGAIN_S, BringPlan
from mpwatch.observe.fold import Fold

from .worlds import MAIN, sample, tree


def seen(at_s: float, state: HookState) -> Snapshot:
    fold = Fold()
    fold.apply(tree(at_s, replace(sample(MAIN, at_s), is_python=True)))
    fold.apply(HookStatus(MAIN, at_s, state))
    return fold.snapshot()


def planned(*looks: tuple[float, HookState]) -> list[tuple[int, int]]:
    """How many processes get the hook for the first time, and how many are looked after."""
    plan = BringPlan()
    return [tuple(map(len, plan.due(seen(*look)))) for look in looks]  # type: ignore[misc]


def test_a_process_without_a_hook_gets_it_once() -> None:
    assert planned((1.0, "absent"), (2.0, "absent"), (99.0, "absent")) == [(1, 0), (0, 0), (0, 0)]


def test_a_process_that_was_freed_of_its_hook_stays_free() -> None:
    assert planned((1.0, "ready"), (2.0, "absent"), (99.0, "absent")) == [(0, 0)] * 3


def test_a_pending_hook_is_looked_after_from_time_to_time() -> None:
    looks = [(1.0, "absent"), *((1.0 + n * AGAIN_S / 4, "pending") for n in range(1, 10))]

    found = planned(*looks)  # type: ignore[arg-type]

    assert found[0] == (1, 0)
    assert [again for _, again in found[1:]] == [0, 0, 0, 1, 0, 0, 0, 1, 0]
