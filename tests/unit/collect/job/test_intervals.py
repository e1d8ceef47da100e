"""Which probes are run in a job that is read once a second."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from mpwatch.collect.job.reader import ReadRequest, TreeCollector
from mpwatch.collect.process import fds, memory, procfs, threads
from mpwatch.collect.process.process_reader import FEW_PAGES
from mpwatch.collect.process.schedule import CALM_AFTER_S, CALM_FACTOR, MANY, THREADS_S
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample, TreeSample
from tests.builders.clock import Clock
from tests.unit.collect.conftest import FakeProc

CHILD = 15
SLEEPS = "230 0x1 0x1 0x7ffd0 0x0 0x0 0x0 0x7ffd1 0x7f01\n"
READS = "0 0x3 0x7ffd8 0x4 0x0 0x0 0x0 0x7ffd2 0x7f02\n"
CHEAP = ReadRequest(links_count=0, maps_count=0, memory_count=0)
UNTIL_CALM = int(CALM_AFTER_S)


class Job:
    """A tree that is read once a second."""

    def __init__(self, proc: FakeProc, size: int = MANY, state: str = "S") -> None:
        self.clock = Clock()
        for pid in range(10, 10 + size):
            proc.process(pid, parent=10 if pid > 10 else 1, state=state)
            proc.thread(pid, pid, syscall=SLEEPS)
        self.tree = TreeCollector(
            ProcessId(10, 10), proc=str(proc), clock=self.clock, wall=lambda: 5e9
        )

    def read(self, request: ReadRequest = CHEAP) -> TreeSample:
        """The next reading."""
        self.clock.now_s += 1.0
        reading = self.tree.collect(request)
        assert reading is not None
        return reading

    def child(self, request: ReadRequest = CHEAP) -> ProcSample:
        """The next reading of one child."""
        processes = self.read(request).processes
        return next(each for each in processes if each.process.pid == CHILD)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes whose threads were read."""
    return calls(monkeypatch, threads, "read_threads")


def was_read(job: Job, reads: list[int], count: int, request: ReadRequest = CHEAP) -> list[bool]:
    """Whether the threads of a child were read in each of the next readings."""
    found = []
    for _ in range(count):
        reads.clear()
        job.read(request)
        found.append(CHILD in reads)
    return found


def calm(proc: FakeProc, reads: list[int]) -> Job:
    """A job that is calm, the child read just now."""
    job = Job(proc)
    was_read(job, reads, UNTIL_CALM)
    while was_read(job, reads, 1) != [False]:
        pass
    while was_read(job, reads, 1) != [True]:
        pass
    return job


def test_in_a_calm_job_an_unchanged_process_is_read_every_fifth_second(
    proc: FakeProc, reads: list[int]
) -> None:
    job = Job(proc)

    assert was_read(job, reads, UNTIL_CALM) == [True] * UNTIL_CALM
    assert was_read(calm(proc, reads), reads, 10) == 2 * [False, False, False, False, True]


def test_in_a_small_job_all_processes_are_read_every_time(proc: FakeProc, reads: list[int]) -> None:
    assert was_read(Job(proc, MANY - 1), reads, 20) == [True] * 20


def test_a_start_ends_the_calm(proc: FakeProc, reads: list[int]) -> None:
    job = calm(proc, reads)
    proc.process(99, parent=10)

    assert was_read(job, reads, UNTIL_CALM) == [True] * UNTIL_CALM


def test_an_exit_ends_the_calm(proc: FakeProc, reads: list[int]) -> None:
    job = calm(proc, reads)
    proc.end(12)

    assert was_read(job, reads, UNTIL_CALM) == [True] * UNTIL_CALM


CHANGES: dict[str, Callable[[FakeProc], None]] = {
    "cpu": lambda proc: proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, ticks=6)),
    "state": lambda proc: proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, "python", "T", CHILD)),
    "threads": lambda proc: proc.write(
        f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, threads=2)
    ),
    "descriptors": lambda proc: proc.fd(CHILD, 3, "/data/a"),
    "call": lambda proc: proc.thread(CHILD, CHILD, syscall=READS, counters="11 21 31\n"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_threads_of_a_process_that_changed_are_read_at_once(
    proc: FakeProc, reads: list[int], change: Callable[[FakeProc], None]
) -> None:
    job = calm(proc, reads)
    change(proc)

    assert was_read(job, reads, 1) == [True]


def test_what_is_read_every_time_is_new_in_each_sample(proc: FakeProc, reads: list[int]) -> None:
    job = calm(proc, reads)
    proc.fd(CHILD, 3, "/data/a")
    proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, "other", start=CHILD, ticks=6))

    sample = job.child()

    assert sample.fds is not None
    assert (sample.at_s, sample.name, sample.cpu_ticks, sample.fds.used) == (
        job.clock.now_s,
        "other",
        6,
        1,
    )


def test_threads_that_are_not_read_are_as_they_were(proc: FakeProc, reads: list[int]) -> None:
    job = calm(proc, reads)
    before = job.child().threads
    proc.thread(CHILD, CHILD, syscall=SLEEPS, counters="999 20 30\n")

    assert job.child().threads == before
    assert before is not None


def test_a_thread_that_woke_up_and_sleeps_in_the_same_call_is_no_change(
    proc: FakeProc, reads: list[int]
) -> None:
    job = calm(proc, reads)
    found = []
    for second in range(10):
        proc.thread(CHILD, CHILD, syscall=SLEEPS, counters=f"10 20 {31 + second}\n")
        found += was_read(job, reads, 1)

    assert found.count(True) == 2


def test_a_process_whose_call_is_hidden_is_read_at_the_interval(
    proc: FakeProc, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "syscall")

    assert was_read(calm(proc, reads), reads, 20).count(True) == 4


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make files of these names unreadable."""
    really = os.open

    def open_or_refuse(path: Any, *arguments: Any, **more: Any) -> int:
        if str(path).rsplit("/", 1)[-1] in names:
            raise PermissionError(13, "Permission denied")
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", open_or_refuse)


def test_the_process_under_the_cursor_is_read_every_time(proc: FakeProc, reads: list[int]) -> None:
    followed = ReadRequest(followed=ProcessId(CHILD, CHILD))

    assert was_read(Job(proc), reads, 20, followed) == [True] * 20


def calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """The processes that a function reads from now on."""
    pids: list[int] = []
    really = getattr(module, name)

    def note(proc: str, pid: int, *more: Any) -> Any:
        pids.append(pid)
        return really(proc, pid, *more)

    monkeypatch.setattr(module, name, note)
    return pids


@pytest.mark.slow
def test_lists_and_memory_of_a_calm_job_are_read_in_rotation(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64
    job = Job(proc, size)
    job.read(ReadRequest(links_count=None, maps_count=None, memory_count=None))
    links, mappings, rollups = (
        calls(monkeypatch, fds, "read_descriptors"),
        calls(monkeypatch, memory, "read_mappings"),
        calls(monkeypatch, memory, "read_rollup"),
    )
    for _ in range(170):
        job.read(ReadRequest())

    # Of 64 processes: every 150 s, and memory of one in 10 s, once it is 600 s old.
    assert sorted(links) == list(range(10, 74))
    assert sorted(mappings) == sorted(set(mappings))
    assert rollups == []


def test_the_mappings_of_a_stuck_process_do_not_hold_up_those_of_others(proc: FakeProc) -> None:
    job = Job(proc)
    proc.process(10, parent=1, state="D")

    read = [job.read(ReadRequest()).processes for _ in range(MANY + 1)][-1]

    assert [each.process.pid for each in read if each.maps is None] == [10]


@pytest.mark.slow
def test_each_reading_of_a_thousand_processes_opens_a_few_files_of_each(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1000
    job = Job(proc, size)
    job.read(ReadRequest())
    opened = calls_of_open(monkeypatch)
    job.read(ReadRequest())
    busy = len(opened)
    job.clock.now_s += CALM_AFTER_S
    job.read(ReadRequest())
    opened.clear()
    for _ in range(3):
        job.read(ReadRequest())

    # `stat`, and the main thread's `schedstat` and `syscall`; of a real one they stay open.
    assert busy < 4 * size
    # Of a calm job the threads are left out.
    assert len(opened) < 3 * 2.5 * size


def calls_of_open(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The paths opened from now on."""
    paths: list[object] = []
    really = os.open

    def note(path: Any, *arguments: Any, **more: Any) -> int:
        paths.append(path)
        return really(path, *arguments, **more)

    monkeypatch.setattr(os, "open", note)
    return paths


def test_of_a_process_with_thousands_of_threads_a_bounded_number_is_read(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "THREADS_LIMIT", 400)
    proc.process(10, threads=1000)
    for tid in range(11, 1010):
        os.symlink("10", proc.root / f"10/task/{tid}")
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=Clock(), wall=lambda: 5e9)
    opened = calls_of_open(monkeypatch)
    reading = tree.collect(CHEAP)
    first = len(opened)
    assert reading is not None
    assert reading.processes[0].threads is not None
    assert len(reading.processes[0].threads) <= threads.THREADS_LIMIT
    assert reading.processes[0].thread_count == 1000
    opened.clear()
    tree.collect(CHEAP)

    # Four files of each thread that ran, and one of each that did not, beside the children's.
    assert first < 4 * threads.THREADS_LIMIT + 1000 + 100
    assert len(opened) < threads.THREADS_LIMIT + 100


def test_expensive_probes_run_rarely(proc: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    spent_s = [0.0]
    really = threads.read_threads

    def slow(*arguments: Any) -> Any:
        spent_s[0] += 0.2
        return really(*arguments)

    monkeypatch.setattr(threads, "read_threads", slow)
    monkeypatch.setattr("mpwatch.collect.job.reader.time.thread_time", lambda: spent_s[0])
    job = Job(proc, MANY)
    for second in range(40):
        proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, ticks=second))
        sample = job.child()
        assert (sample.at_s, sample.cpu_ticks) == (job.clock.now_s, second)

    assert spent_s[0] <= 0.2 * MANY * 5


def test_a_sample_is_whole_where_the_syscall_file_vanishes(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "syscall", "schedstat", "wchan", "io", "smaps_rollup", "maps")
    proc.process(10)
    tree = TreeCollector(ProcessId(10, 10), proc=str(proc), clock=Clock(), wall=lambda: 5e9)

    reading = tree.collect(ReadRequest())

    assert reading is not None
    (sample,) = reading.processes
    assert sample.threads is not None
    assert sample.threads[0].state == "S"
    assert procfs.parse_stat(proc.stat(10, 1, start=10)).process == sample.process


def test_an_idle_process_of_a_calm_job_keeps_its_sample_until_something_changes(
    proc: FakeProc,
) -> None:
    job = Job(proc)
    for _ in range(UNTIL_CALM + 6):
        job.child()
    idle = [job.child() for _ in range(4)]
    assert len({each.at_s for each in idle}) <= 2  # its threads are read every 4.5 s

    proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, ticks=9))
    busy, after, still = job.child(), job.child(), job.child()

    assert (busy.cpu_ticks, busy.at_s) == (9, job.clock.now_s - 2)
    # The first sample without more cpu time says that it uses none: only then is it idle again.
    assert after.at_s == job.clock.now_s - 1
    assert still is after


def test_an_idle_process_that_takes_a_few_pages_keeps_its_sample_for_seconds_only(
    proc: FakeProc, reads: list[int]
) -> None:
    job = calm(proc, reads)

    for faults in (12, 13, 14):
        proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, faults=faults))
        assert job.child().minor_faults == 11
    assert 14 in [job.child().minor_faults for _ in range(int(CALM_FACTOR * THREADS_S))]

    faults = 14 + FEW_PAGES + 1
    proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, start=CHILD, faults=faults))
    assert job.child().minor_faults == faults


def test_an_idle_process_that_wakes_up_on_another_cpu_keeps_its_sample(
    proc: FakeProc, reads: list[int]
) -> None:
    job = calm(proc, reads)
    samples = []
    for cpu in (1, 2, 3, 4):
        line = proc.stat(CHILD, 10, start=CHILD, cpu=cpu)
        assert procfs.parse_stat(line).cpu == cpu
        proc.write(f"{CHILD}/stat", line)
        samples.append(job.child())

    assert len({each.at_s for each in samples}) <= 2  # its threads are read every 4.5 s


def test_a_change_of_state_makes_a_new_sample_of_an_idle_process(proc: FakeProc) -> None:
    job = Job(proc)
    for _ in range(UNTIL_CALM + 6):
        job.child()

    proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, state="D", start=CHILD))
    stuck = job.child()

    assert (stuck.state, stuck.at_s) == ("D", job.clock.now_s)


def test_a_zombie_has_a_new_sample_at_each_reading(proc: FakeProc) -> None:
    job = Job(proc)
    for _ in range(UNTIL_CALM + 6):
        job.child()

    proc.write(f"{CHILD}/stat", proc.stat(CHILD, 10, state="Z", start=CHILD))

    assert [job.child().at_s for _ in range(4)] == [job.clock.now_s - n for n in (3, 2, 1, 0)]
