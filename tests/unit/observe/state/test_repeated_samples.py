"""Samples of an idle process that are carried over: the same object, older than the reading."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.model.samples import Ended, ProcSample, ThreadSample
from mpwatch.model.snapshot import Process
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, WORKER_0, sample, tree


def worker(at_s: float, cpu_ticks: int = 50) -> ProcSample:
    return sample(WORKER_0, at_s, parent=100, role="loader-worker", cpu_ticks=cpu_ticks)


class Watched:
    """A main process that is read every second, and a worker with samples of the test."""

    def __init__(self) -> None:
        self.fold = Fold()

    def at(self, at_s: float, reading: ProcSample) -> Process:
        """The worker as shown after this tree."""
        self.fold.apply(tree(at_s, sample(MAIN, at_s, role="main"), reading))
        found = self.fold.snapshot().get(WORKER_0)
        assert found is not None
        return found


def test_cpu_used_after_an_idle_time_is_a_rate_over_the_time_since_it_ended() -> None:
    watched = Watched()
    watched.at(1.0, worker(1.0))
    at_rest = worker(2.0)
    for at_s in (2.0, 3.0, 4.0):
        assert watched.at(at_s, at_rest).cpu_percent == 0.0

    assert watched.at(5.0, worker(5.0, cpu_ticks=150)).cpu_percent == 100.0


def test_an_idle_process_has_used_no_cpu_up_to_the_last_reading() -> None:
    watched = Watched()
    thread = ThreadSample(WORKER_0.pid, "python", "S", 9)
    still = [
        watched.at(at_s, replace(worker(min(at_s, 2.0)), threads=(thread,))).threads[0].still_s
        for at_s in (1.0, 2.0, 3.0, 4.0)
    ]

    assert still == [None, 1.0, 2.0, 3.0]


def test_a_series_continues_while_a_process_is_idle() -> None:
    fold = Watched()
    fold.at(1.0, worker(1.0))
    at_rest = worker(2.0)
    for at_s in (2.0, 3.0, 4.0):
        fold.at(at_s, at_rest)

    shown = fold.at(5.0, worker(5.0))

    assert list(shown.trends.fds) == [20, 20, 20, 20, 20]


def test_an_idle_worker_whose_parent_has_exited_is_shown_without_a_parent() -> None:
    watched = Watched()
    at_rest = worker(1.0)
    watched.at(1.0, at_rest)
    watched.at(2.0, at_rest)
    assert watched.at(3.0, at_rest).depth == 1

    watched.fold.apply(tree(4.0, at_rest))
    orphan = watched.fold.snapshot().get(WORKER_0)

    assert orphan is not None
    assert orphan.parent is None
    assert orphan.depth == 0


def test_an_exited_process_is_shown_the_same_however_often_it_was_asked_for() -> None:
    often, once = Watched(), Watched()
    for watched in (often, once):
        watched.at(1.0, worker(1.0))
        watched.fold.apply(Ended(WORKER_0, 1.5, 0))
    often.fold.snapshot()
    for watched in (often, once):
        watched.fold.apply(tree(2.0, sample(MAIN, 2.0, role="main"), worker(2.0, cpu_ticks=90)))

    assert often.fold.snapshot() == once.fold.snapshot()
