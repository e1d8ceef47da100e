"""Of a job with many processes, those at rest are not read every time: how old that may become."""

from __future__ import annotations

import os
from typing import Any

import pytest

from mpwatch.collect.job.reader import MANY, ReadRequest, TreeCollector
from mpwatch.collect.process import fds, maps
from mpwatch.collect.process.reader import ProcessReader
from mpwatch.collect.process.schedule import (
    ASLEEP_S,
    FEW_PAGES,
    MARKS_KEPT,
    NEAR,
    REST_S,
    STEADY_LIMIT,
    TRUSTED_S,
    Slow,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample

from .conftest import FakeProc

CHILD = 15
SLEEPS = "230 0x1 0x1 0x7ffd0 0x0 0x0 0x0 0x7ffd1 0x7f01\n"
READS = "0 0x3 0x7ffd8 0x4 0x0 0x0 0x0 0x7ffd2 0x7f02\n"
CHEAP = ReadRequest(links_count=0, maps_count=0, memory_count=0)


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

    def child(self, wanted: ReadRequest = CHEAP) -> ProcSample:
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


def without_counters(proc: FakeProc) -> None:
    """As where the kernel does not count how often a thread ran."""
    proc.write(f"{CHILD}/task/{CHILD}/schedstat", "0 0 0\n")


def in_call(proc: FakeProc, call: str, counters: str) -> None:
    """Let the main thread of a child be in a call, having run so often."""
    proc.thread(CHILD, CHILD, syscall=call, counters=counters)


def test_a_process_whose_main_thread_is_seen_asleep_is_read_every_fifth_second(
    proc: FakeProc,
) -> None:
    assert ages(Job(proc), 9) == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 1.0, 2.0]
    assert 4.0 < ASLEEP_S <= 5.0


def test_one_whose_sleep_cannot_be_seen_is_read_every_third_second(proc: FakeProc) -> None:
    job = Job(proc)
    without_counters(proc)

    assert ages(job, 9) == [0.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0]
    assert 2.0 < REST_S < 3.0


def test_who_wakes_up_and_goes_back_to_the_same_sleep_rests(proc: FakeProc) -> None:
    job = Job(proc)
    in_call(proc, SLEEPS, "10 20 30\n")
    assert ages(job, 3)[-1] == 1.0
    for second in range(2, 5):
        in_call(proc, SLEEPS, f"10 20 {30 + second}\n")
        assert ages(job, 1) == [float(second)]


def test_a_young_reading_stands_without_asking_where_the_main_thread_is(proc: FakeProc) -> None:
    job = Job(proc)
    in_call(proc, SLEEPS, "10 20 30\n")
    ages(job, 2)
    in_call(proc, READS, "10 20 31\n")

    assert ages(job, 2) == [1.0, 0.0]
    assert 1.0 < TRUSTED_S < 2.0


def test_who_goes_from_one_sleep_to_another_is_read_at_once(proc: FakeProc) -> None:
    job = Job(proc)
    in_call(proc, SLEEPS, "10 20 30\n")
    assert ages(job, 3)[-1] == 1.0
    in_call(proc, READS, "10 20 31\n")

    sample = job.child()

    assert sample.at_s == job.clock.now_s
    assert sample.threads is not None
    assert sample.threads[0].syscall == 0


def test_who_has_run_and_is_in_no_call_that_is_known_is_read_at_once(proc: FakeProc) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    in_call(proc, "running\n", "10 20 31\n")

    assert ages(job, 1) == [0.0]


def test_in_a_small_job_everybody_is_read_every_time(proc: FakeProc) -> None:
    assert ages(Job(proc, MANY - 1), 5) == [0.0] * 5


def test_who_has_used_cpu_is_read_at_once(proc: FakeProc) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, ticks=6))

    sample = job.child()

    assert (sample.at_s, sample.cpu_ticks) == (job.clock.now_s, 6)


def faulted(proc: FakeProc, minor: int, major: int = 12) -> None:
    """Let a child have had so many page faults; 11 and 12 at first."""
    before = proc.stat(CHILD, 10, start=CHILD)
    after = before.replace(b" 0 11 0 12 ", b" 0 %d 0 %d " % (minor, major))
    assert after != before
    proc.write(f"{CHILD}/stat", after)


@pytest.mark.parametrize(("minor", "major"), [(12 + FEW_PAGES, 12), (12, 13)])
def test_many_page_faults_and_those_that_waited_are_read_at_once_and_are_followed_by_rest(
    proc: FakeProc, minor: int, major: int
) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    faulted(proc, minor, major)

    sample = job.child()

    assert (sample.at_s, sample.minor_faults) == (job.clock.now_s, minor)
    assert ages(job, 5) == [1.0, 2.0, 3.0, 4.0, 0.0]


def test_a_few_page_faults_are_read_when_the_reading_is_old(proc: FakeProc) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    faulted(proc, 11 + FEW_PAGES)

    assert ages(job, 4) == [2.0, 3.0, 4.0, 0.0]
    assert job.child().minor_faults == 11 + FEW_PAGES


def test_that_a_file_was_opened_is_read_at_once(proc: FakeProc) -> None:
    job = Job(proc)
    assert ages(job, 3)[-1] == 1.0
    proc.fd(CHILD, 3, "/data/a")

    sample = job.child()

    assert sample.fds is not None
    assert (sample.at_s, sample.fds.used) == (job.clock.now_s, 1)


def asked(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """Of which processes a function of a module reads something from now on."""
    pids: list[int] = []
    really = getattr(module, name)

    def note(proc: str, pid: int, *more: Any) -> Any:
        pids.append(pid)
        return really(proc, pid, *more)

    monkeypatch.setattr(module, name, note)
    return pids


def test_the_descriptors_of_who_rests_are_counted_every_other_second(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(proc, 64)
    job.child(ReadRequest(links_count=None, maps_count=None, memory_count=None))
    pids = asked(monkeypatch, fds, "count")
    ages(job, 10)
    assert pids.count(CHILD) == 5

    proc.fd(CHILD, 3, "/data/a")
    seen = [sample.fds and sample.fds.used for sample in (job.child(), job.child())]
    assert seen in ([0, 1], [1, 1])


def test_of_many_processes_mappings_are_read_at_every_other_reading(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = asked(monkeypatch, maps, "read_mappings")
    job = Job(proc, 64)
    for _ in range(64):  # one each time, while there are any that never were
        job.child(ReadRequest(links_count=0, maps_count=1, memory_count=0))
    assert sorted(pids) == list(range(10, 74))
    pids.clear()
    for _ in range(10):
        job.child(ReadRequest(links_count=0, maps_count=1, memory_count=0))
    assert pids == [10, 11, 12, 13, 14]


def test_the_descriptors_of_who_is_looked_at_or_moves_are_counted_every_second(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, pids = Job(proc), asked(monkeypatch, fds, "count")
    for second in range(5):
        job.child(ReadRequest(looked_at=ProcessId(CHILD, CHILD)))
        assert pids.count(CHILD) == second + 1
    for second in range(5):
        proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, ticks=10 + second))
        job.child()
        assert pids.count(CHILD) == second + 6


def test_who_opens_files_all_the_time_is_read_in_full_all_the_same(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, full = Job(proc), []
    really = ProcessReader.read

    def note(reader: ProcessReader, around: Any, stat: Any, *more: Any) -> ProcSample:
        if stat.pid == CHILD:
            full.append(around.at_s - 1000.0)
        return really(reader, around, stat, *more)

    monkeypatch.setattr(ProcessReader, "read", note)
    for second in range(1, 14):
        proc.fd(CHILD, second, f"/data/{second}")
        sample = job.child()
        assert (sample.at_s, sample.fds and sample.fds.used) == (job.clock.now_s, second)

    assert full == [1.0, 2.0, 7.0, 12.0]


@pytest.mark.parametrize("state", ["D", "R", "T"])
def test_who_does_not_sleep_is_never_at_rest(proc: FakeProc, state: str) -> None:
    job = Job(proc)
    proc.process(CHILD, parent=10, state=state)

    assert ages(job, 5) == [0.0] * 5


def test_who_is_looked_at_is_read_every_time(proc: FakeProc) -> None:
    job = Job(proc)
    looked_at = ReadRequest(looked_at=ProcessId(CHILD, CHILD))

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

    # `stat` and the main thread's `schedstat` each time: of a real one they are held open.
    assert len(paths) < 3 * (2.6 * size + 30)


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
    part.done((20,), 30.0, 0.0, is_same=True)
    assert part.patience == 4
    assert not part.is_due((20,), 65.0, 10.0)
    assert part.is_due((21,), 61.0, 10.0)
    part.done((20,), 62.0, 0.0, is_same=False)
    assert part.is_due((20,), 72.5, 10.0)


def test_what_hardly_moved_and_was_nearly_as_much_may_become_three_times_as_old() -> None:
    part, due_s = Slow(), []
    part.done((20,), 0.0, 0.0)
    for second in range(1, 80):
        mark = (20 + second % 3,)
        if part.is_due(mark, float(second), 10.0):
            due_s.append(second)
            part.done(mark, float(second), 0.0, is_like=True)

    assert due_s == [11, 42, 73]


def test_what_goes_up_and_down_between_known_marks_is_no_news_and_what_leaves_them_is() -> None:
    part = Slow()
    due_s = []
    for second in range(40):
        mark = (100 + 90 * (second % 2),)
        if part.is_due(mark, float(second), 30.0):
            due_s.append(second)
            part.done(mark, float(second), 0.0)

    assert due_s == [0, 1, 32]
    assert not part.is_due((150,), 40.0, 30.0)
    assert part.is_due((190 + NEAR + 10,), 40.0, 30.0)
    assert part.is_due((100 - NEAR - 6,), 40.0, 30.0)
    for second in range(40, 80):
        part.done((10 * second,), float(second), 0.0)
    assert len(part.usual) == MARKS_KEPT
