from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from mpwatch.model.events import HookStatus
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ThreadSample, WaitedOn
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.source import TakeStacks
from mpwatch.observe.sources.stack_schedule import (
    FIRST_PER_READING,
    HOOKED_PER_READING,
    LONGER,
    RANK_S,
    RANKS_PER_READING,
    REPEATED_READINGS,
    ROOT_LIMIT_S,
    ROOT_S,
    STILL_LIMIT_S,
    STILL_S,
    STOPPED_AGAIN_S,
    YOUNG_PER_READING,
    YOUNG_S,
    SelectedStacks,
    StackRequest,
    StackSchedule,
)
from mpwatch.observe.state.fold import Fold
from tests.builders.samples import MAIN, WORKER_0, sample, tree


class Plan:
    """A schedule with the plan of the dashboard, and the processes that are due."""

    def __init__(self, *, samples_ranks: bool = False) -> None:
        self.schedule = StackSchedule(SelectedStacks(samples_ranks=samples_ranks))

    def due(
        self, snapshot: Snapshot, excluded: frozenset[ProcessId] = frozenset()
    ) -> list[ProcessId]:
        return [request.process for request in self.schedule.due(snapshot, excluded)]


def standing(*seconds: float, ticks: int = 5) -> list[Snapshot]:
    """Snapshots of one Python process that uses no cpu after the first."""
    fold, out = Fold(), []
    for at_s in seconds:
        thread = ThreadSample(100, "python", "S", ticks)
        reading = replace(sample(MAIN, at_s, threads=(thread,)), is_python=True)
        fold.apply(tree(at_s, reading))
        out.append(fold.snapshot())
    return out


def test_stacks_of_each_new_process_are_taken_once() -> None:
    first, second = standing(1.0, 2.0)
    plan = Plan()

    assert plan.due(first) == [MAIN]
    assert plan.due(second) == []


def test_the_first_stack_of_an_excluded_process_is_taken_later() -> None:
    first, second = standing(1.0, 2.0)
    plan = Plan()

    assert plan.due(first, frozenset({MAIN})) == []
    assert plan.due(second) == [MAIN]


def test_stacks_of_a_process_that_stops_are_taken_once_more_and_then_rarely() -> None:
    plan = Plan()
    times = [float(second) for second in range(1, 61)]

    looked = [at_s for at_s, seen in zip(times, standing(*times), strict=True) if plan.due(seen)]

    assert looked[0] == 1.0
    assert len(looked) <= 2 + int(60 / STOPPED_AGAIN_S)
    assert looked[1:]


def pausing(*pauses: int) -> list[tuple[float, str]]:
    """The processes whose stacks are taken, of a main and its worker, while main pauses and
    continues again and again."""
    fold, plan, looked = Fold(), Plan(), []
    at_s = 0.0
    for ticks, pause in enumerate(pauses):
        for _ in range(pause):
            at_s += 1.0
            moving = ThreadSample(100, "python", "S", ticks)
            main = replace(sample(MAIN, at_s, role="main", threads=(moving,)), is_python=True)
            own = ThreadSample(101, "python", "S", ticks)
            worker = replace(sample(WORKER_0, at_s, parent=100, threads=(own,)), is_python=True)
            fold.apply(tree(at_s, main, worker))
            looked += [(at_s, each) for each in plan.due(fold.snapshot())]
    return [(when, "main" if each == MAIN else "worker") for when, each in looked]


def test_a_root_with_its_usual_pauses_has_not_stopped() -> None:
    looked = pausing(*[5] * 20)

    assert looked[:2] == [(1.0, "main"), (1.0, "worker")]
    # Only the periodic stacks of a root that works.
    assert looked[2:] == [(11.0, "main"), (31.0, "main"), (71.0, "main")]


def test_a_root_with_a_longer_pause_than_usual_has_stopped() -> None:
    looked = pausing(*[5] * 20, 40)

    late = [(when, who) for when, who in looked if when > 100.0]
    assert late[0][0] <= 100.0 + 2 + LONGER * 5
    assert {who for _, who in late[:2]} == {"main", "worker"}


def test_a_long_pause_is_not_waited_for_again() -> None:
    looked = pausing(60, 60)

    late = [when for when, who in looked if when > 60.0 and who == "worker"]
    assert late[0] <= 60.0 + 2 + STILL_LIMIT_S


def test_stacks_of_a_followed_process_are_taken_twice_a_second_and_not_in_rounds() -> None:
    plan, seen = Plan(), standing(1.0, 1.5, 2.0)
    plan.schedule.follow(MAIN)

    due = [
        request
        for step in range(21)
        for request in plan.schedule.due_between(seen[0], 10.0 + 0.1 * step)
    ]

    assert due == [StackRequest(MAIN)] * 5
    assert [plan.due(each) for each in seen] == [[]] * 3


def test_stacks_of_a_followed_process_are_not_taken_while_the_hook_is_injected() -> None:
    schedule, seen = StackSchedule(), standing(1.0)[0]
    schedule.follow(MAIN)

    assert not schedule.is_due_between(10.0, {MAIN})
    assert schedule.due_between(seen, 10.0, {MAIN}) == []
    assert schedule.is_due_between(10.0)


def test_stacks_that_the_user_requests_are_due_at_once_and_count_for_the_plan() -> None:
    plan, seen = Plan(), standing(1.0, 2.0)
    plan.schedule.request(TakeStacks(native=True))
    plan.schedule.request(TakeStacks(WORKER_0))

    assert plan.schedule.is_due_between(1.0)
    assert plan.schedule.due_between(seen[0], 1.0) == [StackRequest(MAIN, native=True)]
    assert not plan.schedule.is_due_between(1.0)
    assert plan.due(seen[1]) == []


def test_stacks_of_many_new_processes_are_taken_over_several_readings() -> None:
    fold = Fold()
    many = [
        replace(sample(ProcessId(200 + n, n), 1.0, parent=100), is_python=True) for n in range(20)
    ]
    fold.apply(tree(1.0, sample(MAIN, 1.0, role="main"), *many))
    plan = Plan()

    first, second = plan.due(fold.snapshot()), plan.due(fold.snapshot())

    assert len(first) == len(second) == FIRST_PER_READING
    assert not set(first) & set(second)


def test_stacks_of_processes_without_python_or_that_cannot_be_stopped_are_not_taken() -> None:
    fold = Fold()
    stuck = replace(sample(MAIN, 1.0, state="D"), is_python=True)
    fold.apply(tree(1.0, stuck, sample(WORKER_0, 1.0, parent=100)))

    assert Plan().due(fold.snapshot()) == []


def test_stacks_of_an_idle_worker_are_not_taken_while_the_job_makes_progress() -> None:
    fold, plan, looked = Fold(), Plan(), []
    for second in range(1, 60):
        at_s = float(second)
        busy = ThreadSample(100, "python", "S", second)
        idle = ThreadSample(101, "python", "S", 5)
        main = replace(sample(MAIN, at_s, role="main", threads=(busy,)), is_python=True)
        worker = replace(sample(WORKER_0, at_s, parent=100, threads=(idle,)), is_python=True)
        fold.apply(tree(at_s, main, worker))
        looked += plan.due(fold.snapshot())

    assert looked.count(WORKER_0) == 1
    assert looked.count(MAIN) == 3  # after 0, 10 and 30 s


def working(*courses: tuple[int, int], until_s: int = 400) -> list[float]:
    """When stacks of a busy root are taken, with so many threads from a given second on."""
    fold, plan, looked = Fold(), Plan(), []
    begins = dict(courses)
    count = 1
    for second in range(1, until_s):
        at_s, count = float(second), begins.get(second, count)
        busy = tuple(ThreadSample(100 + n, "python", "S", second) for n in range(count))
        main = sample(MAIN, at_s, role="main", threads=busy)
        fold.apply(tree(at_s, replace(main, is_python=True, thread_count=count)))
        looked += [at_s] * len(plan.due(fold.snapshot()))
    return looked


def test_stacks_of_an_unchanged_root_are_taken_at_growing_intervals() -> None:
    assert working() == [1.0, 11.0, 31.0, 71.0, 151.0, 311.0]
    assert ROOT_S == 10.0
    assert ROOT_LIMIT_S == 160.0


def test_stacks_of_a_root_that_has_changed_are_taken_soon() -> None:
    assert working((200, 3), until_s=250) == [1.0, 11.0, 31.0, 71.0, 151.0, 200.0, 220.0]


def test_stacks_of_a_root_with_a_busy_thread_without_stack_are_taken_soon() -> None:
    fold, plan, looked = Fold(), Plan(), []
    for second in range(1, 200):
        at_s = float(second)
        second_one = 50 * max(0, second - 120)
        threads = (
            ThreadSample(100, "python", "S", second),
            ThreadSample(101, "x", "S", second_one),
        )
        main = sample(MAIN, at_s, role="main", threads=threads)
        fold.apply(tree(at_s, replace(main, is_python=True, thread_count=2)))
        looked += [at_s] * len(plan.due(fold.snapshot()))

    assert looked[:5] == [1.0, 11.0, 31.0, 71.0, 121.0]


def test_stacks_of_an_idle_root_with_an_old_sample_are_taken() -> None:
    fold, plan, looked = Fold(), Plan(), []
    for second in range(1, 9):
        read_at_s = float(min(second, 4))
        thread = ThreadSample(100, "python", "S", min(second, 2))
        reading = replace(sample(MAIN, read_at_s, threads=(thread,)), is_python=True)
        fold.apply(tree(float(second), reading))
        looked += [second] * len(plan.due(fold.snapshot()))

    assert looked == [1, 5]


def test_processes_with_a_hook_take_turns() -> None:
    fold, plan = Fold(), Plan()
    many = [ProcessId(200 + n, n) for n in range(12)]
    counts = dict.fromkeys(many, 0)
    for second in range(1, 40):
        at_s = float(second)
        readings = [replace(sample(each, at_s, parent=100), is_python=True) for each in many]
        fold.apply(tree(at_s, sample(MAIN, at_s, role="main"), *readings))
        for each in many:
            fold.apply(HookStatus(each, at_s, "ready"))
        due = plan.due(fold.snapshot())
        assert len(due) <= FIRST_PER_READING + HOOKED_PER_READING
        for each in due:
            counts[each] += 1

    assert max(counts.values()) - min(counts.values()) <= 1
    assert min(counts.values()) >= 10


def young(method: str, *seconds: float, count: int = 1) -> list[Snapshot]:
    """Snapshots of a main and its children, which were started at 0 s and use cpu all the time."""
    fold, out = Fold(), []
    for at_s in seconds:
        busy = (ThreadSample(100, "python", "R", int(100 * at_s)),)
        main = replace(sample(MAIN, at_s, threads=busy), is_python=True)
        children = [
            replace(
                sample(ProcessId(500 + number, 1), at_s, parent=MAIN.pid, threads=busy),
                is_python=True,
                start_method=method,
                born_wall_s=tree(0.0, main).wall_s,
            )
            for number in range(count)
        ]
        fold.apply(tree(at_s, main, *children))
        out.append(fold.snapshot())
    return out


def looks_at(plan: Plan, snapshots: list[Snapshot]) -> list[float]:
    """When stacks of a process other than main were taken."""
    return [
        seen.at_s for seen in snapshots for process in plan.due(seen) if process.pid != MAIN.pid
    ]


def test_stacks_of_a_young_spawned_child_are_taken_again() -> None:
    seconds = [float(second) for second in range(1, 61)]

    times = looks_at(Plan(), young("spawn", *seconds))
    assert times[:4] == [1.0, 3.0, 5.0, 7.0]
    assert times[-1] < YOUNG_S
    assert looks_at(Plan(), young("fork", *seconds)) == [1.0]


def test_many_young_children_take_turns() -> None:
    seconds = [float(second) for second in range(20, 30)]
    snapshots = young("spawn", *seconds, count=40)
    plan = Plan()
    plan.due(snapshots[0])
    first = FIRST_PER_READING

    for seen in snapshots[1:]:
        assert len(plan.due(seen)) <= first + YOUNG_PER_READING


RANKS = 64


def launched(
    seconds: int,
    busy: frozenset[int] = frozenset(),
    pauses: frozenset[int] = frozenset(),
    asked_at_s: Mapping[int, ProcessId] = {},
    opens: frozenset[int] = frozenset(),
    samples_ranks: bool = False,
) -> list[tuple[float, ProcessId]]:
    """The stacks taken of a launcher that polls and of its ranks, which stop after 20 s.

    Args:
        seconds: How long the job is watched.
        busy: Numbers of ranks that go on.
        pauses: Numbers of ranks that use cpu every ten seconds only, while they work.
        asked_at_s: When the user asks for the stacks of a process.
        opens: Numbers of ranks that stop in open(2), the others in a futex.
        samples_ranks: Whether ranks that work are sampled.
    """
    fold, plan, looked = Fold(), Plan(samples_ranks=samples_ranks), []
    for second in range(1, seconds + 1):
        at_s = float(second)
        polling = ThreadSample(100, "torchrun", "S", second)
        root = sample(MAIN, at_s, role="launcher", threads=(polling,))
        ranks = []
        for number in range(RANKS):
            ticks = second if number in busy else min(second, 20)
            ticks = ticks // 10 if number in pauses else ticks
            call = "openat" if number in opens else "futex"
            thread = ThreadSample(
                200 + number,
                "python",
                "S",
                ticks,
                waits_on=WaitedOn("pipe-read" if call == "openat" else "futex", call),
            )
            rank = sample(
                ProcessId(200 + number, 1), at_s, parent=100, role="rank", threads=(thread,)
            )
            ranks.append(replace(rank, is_python=True, rank=number))
        fold.apply(tree(at_s, replace(root, is_python=True), *ranks))
        if second in asked_at_s:
            plan.schedule.request(TakeStacks(asked_at_s[second]))
            plan.schedule.due_between(fold.snapshot(), at_s)
        looked += [(at_s, each) for each in plan.due(fold.snapshot()) if each != MAIN]
    return looked


def test_stacks_of_ranks_that_stop_below_a_launcher_that_polls_are_taken_soon() -> None:
    taken = [(at_s, process) for at_s, process in launched(40) if at_s > 20.0]

    assert {process.pid for _, process in taken} == set(range(200, 200 + RANKS))
    assert len(taken) == RANKS
    assert max(at_s for at_s, _ in taken) - 20.0 <= STILL_S + 1 + REPEATED_READINGS


def test_the_stack_of_the_one_rank_that_waits_elsewhere_is_taken_first() -> None:
    taken = [(at_s, each.pid) for at_s, each in launched(40, opens=frozenset({37})) if at_s > 20.0]

    assert taken[0][1] == 237


def test_stacks_of_a_rank_that_works_are_taken_while_the_others_wait_for_it() -> None:
    busy = ProcessId(237, 1)

    taken = [at_s for at_s, process in launched(60, frozenset({37})) if process == busy]

    assert len(taken) >= 2
    assert taken[1] > 20.0


def test_stacks_of_a_rank_with_usual_pauses_are_taken_as_soon_as_most_others_stand() -> None:
    pausing = ProcessId(200, 1)

    taken = launched(60, pauses=frozenset({0}), asked_at_s={18: pausing})

    assert min(at_s for at_s, each in taken if each == pausing and at_s > 18.0) <= 21.0 + STILL_S


@pytest.mark.slow
def test_ranks_that_work_are_sampled_in_turns_where_that_is_wanted() -> None:
    first_s = RANKS / FIRST_PER_READING

    taken = launched(200, frozenset(range(RANKS)), samples_ranks=True)

    again = [process for at_s, process in taken if at_s > first_s + RANK_S]
    assert len(again) <= RANKS_PER_READING * 200
    counts = Counter(again)
    assert set(counts) == {ProcessId(200 + number, 1) for number in range(RANKS)}
    assert max(counts.values()) - min(counts.values()) <= 1


def test_stacks_of_ranks_that_all_work_are_taken_once() -> None:
    assert len(launched(60, frozenset(range(RANKS)))) == RANKS
