from __future__ import annotations

from dataclasses import replace

from mpwatch.model.events import HookHello, HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StacksTaken
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.stack_schedule import (
    FIRST_AFTER_S,
    PATIENCE,
    ROUND_S,
    Request,
    StackRounds,
)
from mpwatch.observe.state.fold import Fold

from .worlds import MAIN, WORKER_0, WORKER_1, sample, tree


class Asked:
    """Stands in for the thread that takes stacks."""

    def __init__(self) -> None:
        self.processes: list[ProcessId] = []
        self.is_started = self.is_stopped = False

    def start(self) -> None:
        self.is_started = True

    def stop(self) -> None:
        self.is_stopped = True

    def ask(self, request: Request) -> None:
        assert self.is_started
        self.processes.append(request.process)


def job() -> Snapshot:
    """A main process with a hook, a worker without, a zombie."""
    fold = Fold()
    parts = (sample(MAIN, 1.0), sample(WORKER_0, 1.0), sample(WORKER_1, 1.0, state="Z"))
    fold.apply(tree(1.0, *(replace(part, is_python=True) for part in parts)))
    fold.apply(HookHello(MAIN, 1.0, 1, "3.11", None, MAIN.pid))
    fold.apply(HookStatus(MAIN, 1.0, "ready"))
    return fold.snapshot()


def rounds() -> tuple[StackRounds, Asked]:
    asked = Asked()
    return StackRounds(asked), asked


def test_only_processes_whose_hook_cannot_be_asked_are_stopped_for_their_stacks() -> None:
    round_, asked = rounds()

    round_.begin(job(), 10.0)

    assert asked.processes == [WORKER_0]


def test_hooks_may_introduce_themselves_before_the_first_round() -> None:
    round_, _ = rounds()

    assert not round_.is_due(10.0)
    assert round_.is_due(10.0 + FIRST_AFTER_S)


def test_the_next_round_waits_for_the_end_of_this_one() -> None:
    round_, _ = rounds()
    round_.begin(job(), 10.0)

    assert round_.is_under_way
    assert not round_.is_due(10.0 + 10 * ROUND_S)

    round_.has_taken(StacksTaken(WORKER_0, 11.0, "py-spy", cost_s=0.02))

    assert not round_.is_under_way
    assert not round_.is_due(10.0 + ROUND_S - 0.1)
    assert round_.is_due(10.0 + ROUND_S)


def test_an_expensive_round_is_followed_by_a_long_pause() -> None:
    round_, _ = rounds()
    round_.begin(job(), 10.0)
    round_.has_taken(StacksTaken(WORKER_0, 11.0, "py-spy", cost_s=1.3))

    assert not round_.is_due(10.0 + PATIENCE * 1.3 - 0.1)
    assert round_.is_due(10.0 + PATIENCE * 1.3)


def test_an_answer_of_a_hook_does_not_end_a_round() -> None:
    round_, _ = rounds()
    round_.begin(job(), 10.0)

    round_.has_taken(StacksTaken(WORKER_0, 11.0, "hook"))

    assert round_.is_under_way


def test_a_watch_that_took_no_stacks_stops_its_thread_all_the_same() -> None:
    round_, asked = rounds()

    round_.stop()

    assert asked.is_stopped
