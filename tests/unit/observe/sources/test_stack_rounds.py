from __future__ import annotations

from msgspec.structs import replace

from mpwatch.model.events import HookHello, HookStatus
from mpwatch.model.samples import StacksTaken
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.stack_schedule import (
    FIRST_ROUND_S,
    PATIENCE,
    ROUND_S,
    StackRounds,
    StackSchedule,
)
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, WORKER_0, WORKER_1, sample, tree


def job(at_s: float) -> Snapshot:
    """A main process with a hook, a worker without, a zombie."""
    fold = Fold()
    parts = (sample(MAIN, at_s), sample(WORKER_0, at_s), sample(WORKER_1, at_s, state="Z"))
    fold.apply(tree(at_s, *(replace(part, is_python=True) for part in parts)))
    fold.apply(HookHello(MAIN, at_s, 1, "3.11", None, MAIN.pid))
    fold.apply(HookStatus(MAIN, at_s, "ready"))
    return fold.snapshot()


def begun(at_s: float = 10.0) -> StackSchedule:
    """A schedule whose first round began at this time."""
    rounds = StackSchedule(StackRounds())
    assert rounds.due(job(at_s - FIRST_ROUND_S)) == []
    assert [request.process for request in rounds.due(job(at_s))] == [MAIN, WORKER_0]
    return rounds


def test_a_round_is_pending_until_py_spy_has_taken_all_stacks_without_a_hook() -> None:
    rounds = begun()
    assert rounds.is_pending

    rounds.received(StacksTaken(WORKER_0, 11.0, "hook"))
    assert rounds.is_pending

    rounds.received(StacksTaken(WORKER_0, 11.0, "py-spy", cost_s=0.02))
    assert not rounds.is_pending


def test_a_watch_is_pending_before_its_first_round() -> None:
    assert StackSchedule(StackRounds()).is_pending
    assert not StackSchedule().is_pending


def test_the_next_round_waits_for_the_end_of_this_one() -> None:
    rounds = begun()
    assert not rounds.due(job(10.0 + 10 * ROUND_S))

    rounds.received(StacksTaken(WORKER_0, 11.0, "py-spy", cost_s=0.02))

    assert not rounds.due(job(10.0 + ROUND_S - 0.1))
    assert rounds.due(job(10.0 + ROUND_S))


def test_an_expensive_round_is_followed_by_a_long_pause() -> None:
    rounds = begun()
    rounds.received(StacksTaken(WORKER_0, 11.0, "py-spy", cost_s=1.3))

    assert not rounds.due(job(10.0 + PATIENCE * 1.3 - 0.1))
    assert rounds.due(job(10.0 + PATIENCE * 1.3))


def test_a_process_that_must_not_be_stopped_is_left_out_of_a_round() -> None:
    rounds = StackSchedule(StackRounds())
    rounds.due(job(9.0))

    assert [request.process for request in rounds.due(job(10.0), {WORKER_0})] == [MAIN]
