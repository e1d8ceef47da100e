"""When threads last ran, as the kernel has noted it by the clocks of the cpus."""

from __future__ import annotations

import threading
import time

import pytest

from mpwatch.collect.process import procfs
from mpwatch.collect.process.last_run import (
    BUDGET_S,
    KEPT_S,
    UNANSWERED_LIMIT,
    CpuClocks,
    LastRunTimes,
    NoAnswer,
    last_run_ms,
)
from mpwatch.collect.process.procfs import TICKS_PER_S, Stat
from mpwatch.collect.process.threads import ASKED_LIMIT, ThreadReading, read_threads

from ..conftest import FakeProc

HEADER = "python (10, #threads: 1)\n-------------------------------------------\n"
NOW_MS = 5_000_000.0


def sched(ran_ms: float | str) -> str:
    """A `sched` file of Linux 6.18, shortened."""
    return (
        f"{HEADER}se.exec_start                                :      {ran_ms:>18}\n"
        "se.vruntime                                  :          2031.071931\n"
        "nr_switches                                  :                    5\n"
    )


def aged(lived_s: float, cpu: int = 3) -> Stat:
    """The `stat` of a thread that started so long ago."""
    born_s = time.clock_gettime(time.CLOCK_BOOTTIME) - lived_s
    line = FakeProc.stat(10, 1, start=int(born_s * TICKS_PER_S))
    return procfs.parse_stat(line)._replace(cpu=cpu)


def ago(proc: FakeProc, ran_ms: float | str, lived_s: float = 900.0) -> float | None:
    """For how long a thread has not run by what is read of it."""
    proc.write("10/task/10/sched", sched(ran_ms))
    times = LastRunTimes(
        CpuClocks(lambda cpu: NOW_MS if cpu == 3 else None, lambda: 70.0), lambda: 70.0
    )
    ran_at_s = times.of(True, f"{proc}/10/task/10", aged(lived_s))
    return None if ran_at_s is None else 70.0 - ran_at_s


def test_a_thread_has_not_run_since_the_clock_of_its_cpu_showed_what_is_noted(
    proc: FakeProc,
) -> None:
    assert ago(proc, NOW_MS - 120_000.25) == pytest.approx(120.00025)


@pytest.mark.parametrize(
    ("ran_ms", "lived_s"),
    [
        (NOW_MS - 500.0, 900.0),  # half a second ago: it is better watched
        (NOW_MS - 120_000.0, 60.0),  # longer ago than it started
        (NOW_MS + 9_000.0, 900.0),  # later than now
        (0.0, 900.0),  # woken on another cpu, and not run there yet
        ("x", 900.0),
    ],
)
def test_what_cannot_be_so_is_not_known(
    proc: FakeProc, ran_ms: float | str, lived_s: float
) -> None:
    assert ago(proc, ran_ms, lived_s) is None


def test_a_kernel_without_the_file_says_nothing(proc: FakeProc) -> None:
    times = LastRunTimes(CpuClocks(lambda cpu: NOW_MS))

    assert times.of(True, f"{proc}/10/task/10", aged(900.0)) is None


def test_a_file_without_the_value_says_nothing() -> None:
    assert last_run_ms(b"") is None
    assert last_run_ms(HEADER.encode()) is None
    assert last_run_ms(b"\nse.exec_start") is None
    assert last_run_ms(b"\nse.exec_start : 12.5") == 12.5


def test_the_clock_of_a_cpu_is_read_again_after_a_while() -> None:
    now, read = [100.0], list[int]()

    def clock_of(cpu: int) -> float | None:
        read.append(cpu)
        return None if cpu == 9 else 1000.0

    clocks = CpuClocks(clock_of, lambda: now[0])
    assert (clocks.now_ms(1), clocks.now_ms(9)) == (1000.0, None)
    now[0] += 2.0
    assert (clocks.now_ms(1), clocks.now_ms(9)) == (3000.0, None)
    now[0] += KEPT_S
    assert (clocks.now_ms(1), clocks.now_ms(9)) == (1000.0, None)
    assert read == [1, 9, 1]


@pytest.mark.parametrize("after_s", [1.0, 10.0, 59.0])
def test_a_thread_that_has_just_run_has_not_slept_where_a_hypervisor_takes_half_of_its_cpu(
    proc: FakeProc, after_s: float
) -> None:
    now = [100.0]

    def clock_of(_cpu: int) -> float:
        return 1000 * now[0] / 2

    times = LastRunTimes(CpuClocks(clock_of, lambda: now[0]), lambda: now[0])
    for _ in range(2):
        proc.write("10/task/10/sched", sched(clock_of(3)))
        assert times.of(True, f"{proc}/10/task/10", aged(900.0)) is None
        now[0] += after_s


def test_cpus_that_do_not_answer_are_asked_once_and_few_of_them() -> None:
    """Each costs time, and leaves a thread behind that waits for its cpu."""
    asked, now = list[int](), [0.0]

    def clock_of(cpu: int) -> float | None:
        asked.append(cpu)
        if cpu < 10:
            raise NoAnswer
        return None

    clocks = CpuClocks(clock_of, lambda: now[0])
    found = [clocks.now_ms(cpu) for cpu in (20, 20, 1, 1, 2, 3, 4)]
    now[0] += 2 * KEPT_S

    assert [*found, clocks.now_ms(1)] == [None] * 8
    assert asked == [20, 1, 2]
    assert UNANSWERED_LIMIT == 2


def test_where_no_further_thread_is_allowed_no_clock_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert CpuClocks().now_ms(0) is None


def test_a_cpu_that_may_not_be_used_has_no_clock() -> None:
    assert CpuClocks().now_ms(1 << 14) is None


def test_where_no_thread_can_be_started_no_clock_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that has as many as it may have, which is a reason to look at it."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert CpuClocks().now_ms(0) is None


def asked(
    proc: FakeProc, known: dict[int, ThreadReading], count: int
) -> tuple[list[int], dict[int, ThreadReading]]:
    """The threads that are asked for, and what is read."""
    tids: list[int] = []

    def last_run(is_main: bool, folder: str, stat: Stat) -> float | None:
        assert is_main is (stat.pid == 10)
        assert folder.endswith(f"/task/{stat.pid}")
        tids.append(stat.pid)
        return 12.0

    found = read_threads(str(proc), 10, count, known, None, last_run=last_run)
    return tids, found


def test_each_thread_is_asked_for_once_while_it_sleeps(proc: FakeProc) -> None:
    proc.process(10)
    proc.thread(10, 11, state="R")

    tids, first = asked(proc, {}, 2)
    again, same = asked(proc, first, 2)
    proc.thread(10, 10, counters="11 20 31\n")
    after, ran = asked(proc, same, 2)

    assert (tids, again, after) == ([10], [], [])
    assert [each[10].sample.ran_at_s for each in (first, same, ran)] == [12.0, 12.0, None]
    assert first[11].sample.ran_at_s is None


def test_of_very_many_threads_the_main_one_and_some_are_asked_for(proc: FakeProc) -> None:
    proc.process(10)
    for tid in range(11, 60):
        proc.thread(10, tid)

    tids, found = asked(proc, {}, 50)

    assert len(found) == 50
    assert ASKED_LIMIT <= len(tids) <= ASKED_LIMIT + 1
    assert 10 in tids


def test_only_main_threads_are_asked_for_once_the_time_of_a_reading_is_spent(
    proc: FakeProc,
) -> None:
    proc.write("10/task/10/sched", sched(NOW_MS - 60_000.0))
    spent = [0.0]

    def cpu_clock() -> float:
        spent[0] += 0.6 * BUDGET_S
        return spent[0]

    times = LastRunTimes(CpuClocks(lambda cpu: NOW_MS, lambda: 70.0), lambda: 70.0, cpu_clock)
    found = [
        times.of(is_main, f"{proc}/10/task/10", aged(900.0))
        for is_main in (False, False, False, True)
    ]

    assert found == [10.0, 10.0, None, 10.0]
