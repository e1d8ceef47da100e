"""Ranks whose steps are long, judged by how they usually wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.habits import is_at_usual_pace, with_habits
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.engine import Engine, Rule
from mpwatch.diagnose.rules.distributed import rank_stuck_in_collective
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.collectives import RankHabit
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, Point
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from tests.builders.snapshots import MAIN, NOW_S, main, pid, process, snapshot_of, thread, ticked

RANK = 70
LOCK = WaitedOn("futex", "futex", ("futex 0x7f",), address=0x7F, futex_command=9)
SLEEP = WaitedOn("timer", "clock_nanosleep", ())
ALL_REDUCE = ("torch/distributed/distributed_c10d.py:all_reduce", "train.py:step:48")
LOADS = ("train.py:load:12", "train.py:step:40")
TAKES = ("threading.py:acquire", "train.py:load:12")


def rank(
    number: int, *calls: str, waits: WaitedOn | None = None, ticks: int = 0, **more: Any
) -> Process:
    state = "S" if waits else "R"
    own = thread(number, *calls, waits=waits, state=state, **more)
    gloo = thread(number + 100, name="gloo_tcp_loop", state="S")
    environment = {"RANK": str(number - RANK), "WORLD_SIZE": "3"}
    made = process(number, "rank", threads=(own, gloo), environment=environment)
    return ticked(made, {number: ticks})


def habit_of(*readings: Process) -> RankHabit:
    """The habit of a rank after readings, one each second."""
    habits: Mapping[ProcessId, RankHabit] = {}
    for second, each in enumerate(readings):
        habits = with_habits(habits, snapshot_of(each, at_s=NOW_S + second))
    return habits[pid(RANK)]


def usual_wait_s(*readings: Process) -> float:
    return habit_of(*readings).usual_wait_s(NOW_S + len(readings) - 1)


works, waits, sleeps = rank(RANK), rank(RANK, waits=LOCK), rank(RANK, waits=SLEEP)


def test_a_rank_moves_where_a_wait_begins_or_ends() -> None:
    inside = habit_of(*[works, *[sleeps] * 9, *[waits] * 10] * 2)
    outside = habit_of(*[sleeps] * 10, *[waits] * 10, *[sleeps] * 10)
    # Once in a while a rank that waits is found awake.
    woken = habit_of(*[sleeps] * 10, *[waits] * 10, works, *[waits] * 10)

    assert (inside.moved_s, outside.moved_s) == (NOW_S + 30, NOW_S + 19)
    assert woken.moved_s == NOW_S + 10
    assert habit_of(*[waits] * 20).moved_s is None
    assert habit_of(*[works] * 20).moved_s is None


def test_cpu_time_between_two_readings_of_waits_is_a_step() -> None:
    before, after, ticked_once = (
        rank(RANK, waits=LOCK, ticks=0),
        rank(RANK, waits=LOCK, ticks=200),
        rank(RANK, waits=LOCK, ticks=1),
    )

    assert habit_of(*[before] * 20, *[after] * 5).moved_s == NOW_S + 20
    assert habit_of(*[before] * 20, *[ticked_once] * 5).moved_s is None


def test_a_wait_that_has_been_as_long_twice_is_usual() -> None:
    step = [sleeps] * 5 + [waits] * 23

    assert usual_wait_s(*step * 4) == 22
    assert usual_wait_s(*[works, waits] * 60) == 0
    assert usual_wait_s(*[waits] * 60, *[waits, works] * 40) == 0  # once is no habit


def test_waits_for_an_evaluation_are_usual_although_hundreds_of_short_steps_are_between() -> None:
    short = [works, waits]
    evaluation = [waits] * 39

    assert usual_wait_s(*short * 200, *evaluation, *short * 200, *evaluation, *short * 200) >= 38


def test_a_wait_that_a_stack_shows_to_be_another_one_is_none_for_the_others() -> None:
    shown = rank(RANK, *TAKES, waits=LOCK)
    shown = replace(
        shown, threads=tuple(replace(each, stack_at_s=NOW_S + 14.5) for each in shown.threads)
    )
    readings = [*[sleeps] * 10, *[waits] * 5, shown, *[shown] * 5, *[sleeps] * 5]

    assert habit_of(*readings).waits_elsewhere
    assert habit_of(*readings, *[shown] * 30).usual_wait_s(NOW_S + 60) == 0


def test_a_stack_elsewhere_shows_that_a_rank_has_left_a_collective() -> None:
    def shown(calls: tuple[str, ...], wait: WaitedOn, taken_s: float) -> Process:
        made = rank(RANK, *calls, waits=wait)
        threads = tuple(replace(each, stack_at_s=NOW_S + taken_s) for each in made.threads)
        return ticked(replace(made, threads=threads), {RANK: 0})

    inside = [shown(ALL_REDUCE, LOCK, 5.5)] * 30
    left = habit_of(*inside, shown(LOADS, SLEEP, 29.5))
    entered = habit_of(*[shown(LOADS, SLEEP, 1.5)] * 2, *inside)

    assert left.moved_s == NOW_S + 29
    assert entered.moved_s is None


def test_without_the_right_to_see_system_calls_the_kernel_tells_where_it_sleeps() -> None:
    hidden = replace(waits, threads=(thread(RANK, wchan="futex_wait_queue"), waits.threads[1]))

    assert habit_of(*[sleeps] * 5, *[hidden] * 5).moved_s == NOW_S + 5


def test_of_a_process_without_a_process_group_nothing_is_noted() -> None:
    alone = process(RANK, "rank", threads=(thread(RANK, waits=LOCK),))

    assert with_habits({}, snapshot_of(ticked(alone, {RANK: 0}))) == {}


# --- what the rules make of it --------------------------------------------------------------------

FAST = (RANK, RANK + 1)
SLOW = RANK + 2


class Job:
    """A launcher with two ranks that wait in each step for a third one, which only sleeps."""

    def __init__(self, rule: Any) -> None:
        self.engine = Engine([Rule(rule.RULE, rule.check)])
        self.second = 0
        self.snapshot: Snapshot | None = None
        self.slow_ended: Ended | None = None

    def run(self, *turns: tuple[Iterable[int], int]) -> list[Finding]:
        """Read the job each second while some ranks wait for so many; the present findings."""
        for inside, seconds in turns:
            waiting = set(inside)
            for _ in range(seconds):
                self._read(waiting)
        assert self.snapshot is not None
        return [each for each in self.snapshot.findings if each.resolved_s is None]

    def _read(self, waiting: set[int]) -> None:
        self.second += 1
        at_s = NOW_S + self.second
        ranks = []
        for number in (*FAST, SLOW):
            stack, wait = (ALL_REDUCE, LOCK) if number in waiting else (LOADS, SLEEP)
            made = rank(number, *stack, waits=wait, stack_age_s=0.5, still_s=float(self.second))
            taken = tuple(
                replace(each, stack_at_s=at_s - 0.5 if each.stack else None)
                for each in made.threads
            )
            ended = self.slow_ended if number == SLOW else None
            ranks.append(replace(made, threads=taken, ended=ended))
        root = main(threads=(thread(100, state="S", waits=SLEEP),))
        numbers = {
            (each.process, metric): [Point(NOW_S + second, 0.0) for second in range(self.second)]
            for each in ranks
            for metric in ("cpu_percent", "voluntary_switches")
        }
        history = History(numbers, {}, NOW_S)  # type: ignore[arg-type]
        self.snapshot = self.engine.diagnosed(snapshot_of(root, *ranks, at_s=at_s), history)


STEP: tuple[tuple[Iterable[int], int], ...] = (((), 5), (FAST, 25))


def worst(findings: list[Finding]) -> Severity | None:
    return max((each.severity for each in findings), default=None)


def test_that_ranks_wait_for_as_long_as_usual_is_information() -> None:
    job = Job(rank_stuck_in_collective)
    first = job.run(*STEP)
    job.run(*STEP * 3)
    usual = job.run(*STEP)
    longer = job.run((FAST, 60))

    assert worst(first) is Severity.WARNING
    assert worst(usual) is Severity.INFO
    assert any("for up to 24 s in earlier steps" in line for line in usual[0].evidence)
    assert worst(longer) is Severity.CRITICAL


def test_a_rank_that_has_died_is_no_usual_wait() -> None:
    job = Job(rank_stuck_in_collective)
    job.run(*STEP * 4)
    job.slow_ended = Ended(pid(SLOW), NOW_S + job.second, exit_code=1)

    assert worst(job.run(*STEP)) is Severity.CRITICAL


def test_the_time_without_progress_of_a_rank_begins_where_it_has_moved() -> None:
    job = Job(no_progress)
    job.run(*STEP * 3)
    assert job.snapshot is not None
    index = Index(job.snapshot, History({}, {}, NOW_S))

    assert [quiet_s(each, index) for each in job.snapshot.processes[1:]] == [24, 24, 90]
    assert is_at_usual_pace(index, pid(FAST[0]))
    assert not is_at_usual_pace(index, pid(SLOW))


@pytest.mark.parametrize("about", [FAST[0], SLOW, MAIN])
def test_of_a_rank_at_its_usual_pace_no_lack_of_progress_is_told(
    monkeypatch: pytest.MonkeyPatch, about: int
) -> None:
    def found(index: Index) -> list[SimpleNamespace]:
        process = index.snapshot.get(pid(about))
        words = {
            "headline": "it makes no progress",
            "evidence": ("4 min",),
            "cause": "",
            "advice": "",
        }
        return [SimpleNamespace(processes=(process,), **words)]

    monkeypatch.setattr(no_progress, "connecting_in_vain", found)
    job = Job(no_progress)
    at_usual = bool(job.run(*STEP * 5))
    later = bool(job.run((FAST, 18)))
    stands = bool(job.run((FAST, 30)))

    assert (at_usual, later) == ((False, False) if about == FAST[0] else (True, True))
    assert stands


def test_an_engine_that_is_given_an_older_snapshot_begins_again() -> None:
    job = Job(no_progress)
    job.run(*STEP * 3)
    assert job.snapshot is not None
    older = job.engine.diagnosed(replace(job.snapshot, at_s=NOW_S), History({}, {}, NOW_S))

    assert all(each.moved_s is None for each in older.habits.values())
