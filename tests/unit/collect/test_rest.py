"""Of a job with many processes, those at rest are not read every time: how old that may become."""

from __future__ import annotations

import os

import pytest

from mpwatch.collect.pacing import STEADY_LIMIT, Slow
from mpwatch.collect.rest import REST_S
from mpwatch.collect.tree import MANY, TreeCollector, Wanted
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample

from .conftest import FakeProc

CHILD = 15
CHEAP = Wanted(links_count=0, maps_count=0, memory_count=0)


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Job:
    """A tree that is read once a second."""

    def __init__(self, proc: FakeProc, size: int = MANY) -> None:
        self.clock = Clock()
        for pid in range(10, 10 + size):
            proc.process(pid, parent=10 if pid > 10 else 1)
        self.tree = TreeCollector(
            ProcessId(10, 10), proc=str(proc), clock=self.clock, wall=lambda: 5e9
        )

    def child(self, wanted: Wanted = CHEAP) -> ProcSample:
        """The next reading of one child."""
        self.clock.now_s += 1.0
        reading = self.tree.collect(wanted)
        assert reading is not None
        return next(each for each in reading.processes if each.process.pid == CHILD)


def ages(job: Job, count: int) -> list[float]:
    found = []
    for _ in range(count):
        sample = job.child()
        found.append(job.clock.now_s - sample.at_s)
    return found


def test_a_process_at_rest_is_read_every_third_second(proc: FakeProc) -> None:
    assert ages(Job(proc), 9) == [0.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0]
    assert 2.0 < REST_S < 3.0


def test_in_a_small_job_everybody_is_read_every_time(proc: FakeProc) -> None:
    assert ages(Job(proc, MANY - 1), 5) == [0.0] * 5


def test_who_has_used_cpu_is_read_at_once(proc: FakeProc) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, ticks=6))

    sample = job.child()

    assert (sample.at_s, sample.cpu_ticks) == (job.clock.now_s, 6)


def test_page_faults_are_read_at_once_and_are_followed_by_rest(proc: FakeProc) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    faulted = proc.stat(CHILD, 10, start=CHILD).replace(b" 0 11 0 12 ", b" 0 42 0 12 ")
    assert faulted != proc.stat(CHILD, 10, start=CHILD)
    proc.write(f"{CHILD}/stat", faulted)

    sample = job.child()

    assert (sample.at_s, sample.minor_faults) == (job.clock.now_s, 42)
    assert ages(job, 3) == [1.0, 2.0, 0.0]


def test_who_has_opened_a_file_is_read_at_once(proc: FakeProc) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    proc.fd(CHILD, 3, "/data/a")

    sample = job.child()

    assert sample.fds is not None
    assert (sample.at_s, sample.fds.used) == (job.clock.now_s, 1)


@pytest.mark.parametrize("state", ["D", "R", "T"])
def test_who_does_not_sleep_is_never_at_rest(proc: FakeProc, state: str) -> None:
    job = Job(proc)
    proc.process(CHILD, parent=10, state=state)

    assert ages(job, 5) == [0.0] * 5


def test_who_is_looked_at_is_read_every_time(proc: FakeProc) -> None:
    job = Job(proc)
    looked_at = Wanted(looked_at=ProcessId(CHILD, CHILD))

    for _ in range(5):
        assert job.child(looked_at).at_s == job.clock.now_s


def test_a_tick_of_a_job_at_rest_opens_a_few_files_a_process(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64
    job = Job(proc, size)
    ages(job, 6)
    paths: list[object] = []
    really = os.open

    def note(path: object, *arguments: object, **more: object) -> int:
        paths.append(path)
        return really(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", note)
    ages(job, 3)

    # `stat` each time, and once in three readings the thread's counters, `schedstat` alone.
    assert len(paths) < 3 * (1.6 * size + 30)


def test_what_was_the_same_when_read_again_may_become_older() -> None:
    part, due_s = Slow(), []
    part.done((20,), 0.0, 0.0)
    for second in range(1, 200):
        if part.is_due((20,), float(second), 10.0):
            due_s.append(second)
            part.done((20,), float(second), 0.0, is_same=True)

    assert due_s == [11, 32, 73, 114, 155, 196]
    assert part.patience == STEADY_LIMIT


def test_patience_ends_with_the_first_small_move_and_with_a_reading_that_differs() -> None:
    part = Slow()
    part.done((20,), 0.0, 0.0)
    part.done((20,), 10.0, 0.0, is_same=True)
    assert not part.is_due((20,), 25.0, 10.0)
    assert part.is_due((21,), 25.0, 10.0)
    part.done((20,), 26.0, 0.0, is_same=False)
    assert part.is_due((20,), 36.5, 10.0)
