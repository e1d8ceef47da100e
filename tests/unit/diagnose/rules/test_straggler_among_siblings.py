"""One of several equal processes for which the others and their parent wait in each round."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput.straggler_worker import check
from mpwatch.model.account import FUTURE_RESULT, IMPORTS, NO_CORE, POOL_RESULTS, Activity
from mpwatch.model.findings import Severity
from mpwatch.model.history import Point
from mpwatch.model.samples import MapSample, WaitedOn
from mpwatch.model.snapshot import GpuUse, Snapshot
from mpwatch.model.source_code import EndlessLoop, Mark, SourceLine, Statement
from tests.builders.accounts import (
    COMPUTES,
    IN_A_CONDITION,
    IN_ALL_REDUCE,
    SLEEPS,
    answers_from,
    with_shares,
)
from tests.builders.snapshots import (
    NOW_S,
    found,
    history,
    main,
    only,
    pid,
    process,
    snapshot_of,
    thread,
    with_threads,
)

WORKS = {SLEEPS: 0.97, answers_from(100): 0.03}
WAITS = {answers_from(100, "env.py:12 worker"): 0.95, SLEEPS: 0.05}


def job(
    slow: dict[Activity, float] = WORKS,
    other: dict[Activity, float] = WAITS,
    owner: float = 0.94,
    label: str = "env 1",
    waits_for: int = 201,
) -> Snapshot:
    """Main that gathers from three environments, of which 201 is the slow one."""
    names = {200: "env 0", 201: label, 202: "env 2"}
    environments = [process(n, "spawned", label=name) for n, name in names.items()]
    mine = {answers_from(waits_for): owner, COMPUTES: 1 - owner}
    return with_shares(
        snapshot_of(main(), *environments), p100=mine, p200=other, p201=slow, p202=other
    )


def test_the_one_environment_that_all_others_wait_for_is_named() -> None:
    finding = only(check, job())

    assert finding.severity is Severity.INFO
    assert finding.is_doubtful
    assert finding.process == pid(201)
    assert finding.others == (pid(200), pid(202))
    assert finding.summary == (
        "main (100) waits 94% of the time for env 1 (201) at env.py:24 step, and 2 processes that "
        "do the same work wait with it"
    )
    assert "at most 16.7 times as fast" in finding.evidence[-1]
    assert "wait 95% of the time" in finding.cause
    assert finding.cause.endswith("its part may be larger by design.")
    assert "stays the same" in finding.advice


NO_PAGE = Activity("waiting", "reading from a disk", "file")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({SLEEPS: 0.1, NO_CORE: 0.87}, "87% waiting for a free core"),
        ({SLEEPS: 0.1, NO_PAGE: 0.87}, "87% waiting for files"),
        ({SLEEPS: 0.5, NO_CORE: 0.47}, None),
    ],
)
def test_a_process_that_is_held_up_is_a_warning_unless_its_part_is_larger_anyway(
    part: dict[Activity, float], words: str | None
) -> None:
    finding = only(check, job(slow={**part, answers_from(100): 0.03}))

    assert finding.severity is (Severity.INFO if words is None else Severity.WARNING)
    assert words is None or any(words in line for line in finding.evidence)
    assert finding.is_doubtful is (words is None)


@pytest.mark.parametrize("falls", [True, False])
def test_a_process_that_reads_requests_less_often_than_before_has_become_slower(
    falls: bool,
) -> None:
    # What it reads while it starts, 5 MB in 2 s, is of no round.
    points = [Point(NOW_S - 80 + s, 5e6 + 400.0 * s if s > 2 else 2.5e6 * s) for s in range(50)]
    later = 80 if falls else 400
    points += [Point(NOW_S - 30 + s, points[-1].value + later * (s + 1)) for s in range(31)]

    finding = only(check, job(), history({(201, "main_read_bytes"): points}))

    assert finding.severity is (Severity.WARNING if falls else Severity.INFO)
    slower = "env 1 (201) has become slower: its main thread read 400B a second before, and 80B"
    assert any(line.startswith(slower) for line in finding.evidence) is falls


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param(job(slow=WAITS), id="all wait as much"),
        pytest.param(job(other=WORKS), id="all work as much"),
        pytest.param(job(owner=0.3), id="the parent hardly waits"),
        pytest.param(job(label="evaluator"), id="it does other work than the others"),
        pytest.param(job(other={answers_from(100): 1.0}), id="the others have no work at all"),
        pytest.param(job(waits_for=200), id="the parent waits for another one"),
    ],
)
def test_processes_that_wait_for_other_reasons_have_no_straggler(healthy: Snapshot) -> None:
    assert found(check, healthy) == []


SAVES = Activity("computing", "Python code", place="train.py:55 save")
SETS_UP = Activity("computing", "Python code", place="train.py:12 __init__")


def ranks(
    slow: float = 0.95, waits: float = 0.7, works: float = 0.2, mine_is: Activity = SAVES
) -> Snapshot:
    """Rank 0, which computes, and two others."""
    job = [process(n, "rank", label=f"rank {n - 200}") for n in (200, 201, 202)]
    other = {IN_ALL_REDUCE: waits, COMPUTES: works, SLEEPS: 1 - waits - works}
    mine = {mine_is: slow, IN_ALL_REDUCE: 1 - slow}
    return with_shares(snapshot_of(main(), *job), p200=mine, p201=other, p202=other)


def test_a_rank_that_works_while_the_others_wait_in_collectives_is_named() -> None:
    finding = only(check, ranks(waits=0.79))

    assert finding.severity is Severity.INFO
    assert finding.process == pid(200)
    assert finding.summary == (
        "rank 1 (201) and rank 2 (202) wait 79% of the time in collectives for rank 0 (200), which "
        "works at train.py:55 save"
    )
    assert "at least 21% of its present time" in finding.evidence[-1]
    assert "metrics, logging or checkpoints of one rank only" in finding.advice


def test_a_rank_that_draws_while_the_others_wait_for_long_is_no_slow_one() -> None:
    ends = (Statement(46, "if fits(item): return item"),)
    loop = EndlessLoop(Statement(43, "while True:"), ends)
    line = SourceLine(
        "/home/me/data.py", 44, "draw", Statement(44, "item = rng.integers(n)"), endless=loop
    )
    job = ranks(waits=0.79)
    parent, first, *others = job.processes
    first = with_threads(first, [thread(200, "data.py:draw:44", state="R", still_s=0.0)])
    waiting = [with_threads(each, [thread(each.pid, still_s=14.0)]) for each in others]
    stuck = replace(job, processes=(parent, first, *waiting), source=(line,))
    busy = [Point(NOW_S - n, 100.0 if n in (14, 26) else 0.0) for n in range(40, -1, -1)]
    past = history({(each.pid, "cpu_percent"): busy for each in others})

    assert found(check, replace(stuck, source=()), past)
    assert found(check, stuck, past) == []


def test_a_rank_that_computes_longer_at_the_line_of_the_others_has_more_data() -> None:
    finding = only(check, ranks(waits=0.79, mine_is=COMPUTES))

    assert finding.summary.endswith("rank 0 (200), which has more to compute at train.py:30 step")
    assert "its part of the data is larger" in finding.cause
    assert "out samples sorted by length in turn" in finding.advice


def test_the_last_stack_of_a_rank_that_waits_shows_its_line_as_well() -> None:
    stack = ("torch/autograd/graph.py:_engine_run_backward", "train.py:step:30")
    at = [thread(n, *stack, still_s=0.5) for n in (201, 202)]
    waits = {IN_ALL_REDUCE: 0.95, Activity("computing", "native code"): 0.05}
    job = ranks()
    others = [replace(p, threads=(t,)) for p, t in zip(job.processes[2:], at, strict=True)]
    seen = replace(job, processes=(*job.processes[:2], *others))

    finding = only(check, with_shares(seen, p200={COMPUTES: 0.95}, p201=waits, p202=waits))

    assert "which has more to compute at train.py:30 step" in finding.summary


def test_a_rank_that_waits_for_a_core_at_the_line_of_the_others_may_have_as_much_data() -> None:
    mine = {COMPUTES: 0.2, NO_CORE: 0.75, IN_ALL_REDUCE: 0.05}
    job = ranks(waits=0.79)
    shares = {
        "p201": {COMPUTES: 0.2, IN_ALL_REDUCE: 0.8},
        "p202": {COMPUTES: 0.2, IN_ALL_REDUCE: 0.8},
    }

    finding = only(check, with_shares(job, p200=mine, **shares))

    assert "which works at train.py:30 step" in finding.summary
    assert "a busy core" in finding.advice


@pytest.mark.parametrize(("computes", "count"), [(0.25, 0), (0.6, 1)])
def test_a_rank_that_only_gets_less_of_the_few_cores_is_no_straggler(
    computes: float, count: int
) -> None:
    mine = {COMPUTES: computes, NO_CORE: 0.97 - computes}
    others = {COMPUTES: 0.2, NO_CORE: 0.4, IN_ALL_REDUCE: 0.4}

    assert len(found(check, with_shares(ranks(), p200=mine, p201=others, p202=others))) == count


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param(ranks(waits=0.3), id="the others wait a little"),
        pytest.param(ranks(slow=0.6), id="it waits, too"),
        pytest.param(ranks(waits=1.0, works=0.0), id="a stall has other rules"),
        pytest.param(ranks(waits=0.79, mine_is=SETS_UP), id="it sets up what the others have"),
    ],
)
def test_ranks_that_wait_for_each_other_have_no_straggler(healthy: Snapshot) -> None:
    assert found(check, healthy) == []


def test_one_long_wait_is_a_stall_unless_the_steps_are_usually_as_long() -> None:
    waits = thread(201, waits=None, still_s=25.0), thread(202, waits=None, still_s=25.0)
    job = ranks(waits=0.79)
    still = [replace(p, threads=(t,)) for p, t in zip(job.processes[2:], waits, strict=True)]
    stalled = replace(job, processes=(*job.processes[:2], *still))
    steps = tuple(Point(NOW_S - 100 + s, 50.0 if s % 24 == 3 else 0.0) for s in range(76))
    usual = history({(n, "cpu_percent"): steps for n in (201, 202)})

    assert found(check, stalled) == []
    assert len(found(check, stalled, usual)) == 1


def test_waits_of_ranks_without_a_stack_count_where_those_with_one_are_in_a_collective() -> None:
    job = [process(n, "rank", label=f"rank {n - 200}") for n in (200, 201)]
    waits = {IN_A_CONDITION: 0.9, COMPUTES: 0.05}

    def told(other: dict[Activity, float]) -> int:
        snapshot = with_shares(snapshot_of(main(), *job), p200={COMPUTES: 1.0}, p201=other)
        return len(found(check, snapshot))

    assert told({**waits, IN_ALL_REDUCE: 0.05}) == 1
    assert told({**waits, SLEEPS: 0.05}) == 0


def test_ranks_that_wait_for_a_core_between_two_collectives_wait_for_the_slow_one() -> None:
    """On a loaded machine some stacks are of a line before the wait."""
    old = IN_A_CONDITION._replace(place="train.py:30 step")
    first = {IN_ALL_REDUCE: 0.45, NO_CORE: 0.3, COMPUTES: 0.1, IN_A_CONDITION: 0.1, old: 0.05}
    second = {IN_ALL_REDUCE: 0.1, NO_CORE: 0.3, COMPUTES: 0.1, IN_A_CONDITION: 0.45, old: 0.05}

    def told(**more: dict[Activity, float]) -> int:
        shares = {"p200": {SAVES: 0.5, NO_CORE: 0.45}, "p201": first, "p202": second, **more}
        return len(found(check, with_shares(ranks(), **shares)))

    assert told() == 1
    assert told(p202={**second, NO_CORE: 0.8, IN_A_CONDITION: 0.0, IN_ALL_REDUCE: 0.05}) == 0
    assert told(p202={**second, IN_ALL_REDUCE: 0.02}) == 0


def test_a_rank_that_is_mostly_the_slowest_is_named_where_another_one_is_at_times() -> None:
    """In some steps rank 1 has the longest sample."""

    def told(second: float) -> int:
        shares = {
            "p200": {COMPUTES: 0.67, NO_CORE: 0.25, IN_ALL_REDUCE: 0.05},
            "p201": {
                IN_ALL_REDUCE: second,
                COMPUTES: 0.3,
                NO_CORE: 0.1,
                answers_from(100): 0.6 - second,
            },
            "p202": {IN_ALL_REDUCE: 0.68, COMPUTES: 0.21, NO_CORE: 0.1},
        }
        return len(found(check, with_shares(ranks(), **shares)))

    assert told(0.41) == 1
    assert told(0.2) == 0


def test_ranks_of_mp_spawn_are_known_by_their_group_and_their_last_stack() -> None:
    backward = ("torch/autograd/graph.py:_engine_run_backward", "train.py:step:33")

    def job(*stack: str) -> Snapshot:
        gloo = thread(299, name="gloo_tcp_loop")
        mains = thread(200, still_s=0.0), thread(201, *stack, still_s=0.5)
        spawned = [
            process(own.tid, "spawned", label=f"rank {own.tid - 200}", threads=[own, gloo])
            for own in mains
        ]
        waits = {IN_A_CONDITION: 0.92, COMPUTES: 0.08}
        return with_shares(snapshot_of(main(), *spawned), p200={COMPUTES: 1.0}, p201=waits)

    assert only(check, job(*backward)).process == pid(200)
    assert found(check, job("train.py:load:20")) == []


def pool(*idle: dict[Activity, float], waits: bool = True) -> Snapshot:
    """Main that waits for a call of a Pool; the first worker works."""
    workers = [process(200 + n, "pool-worker", label=f"pool worker {n}") for n in range(4)]
    stack = ("pool.py:wait", "pool.py:get", "train.py:main:33") if waits else ("train.py:main:34",)
    seen = {f"p{201 + n}": each for n, each in enumerate(idle)}
    return with_shares(
        snapshot_of(main(threads=[thread(100, *stack)]), *workers), p200=WORKS, **seen
    )


HAS_NO_TASK = {Activity("idle", "something to do"): 0.97, SLEEPS: 0.03}


def test_the_one_worker_of_a_pool_that_has_all_of_the_work_is_named() -> None:
    finding = only(check, pool(HAS_NO_TASK, HAS_NO_TASK, HAS_NO_TASK))

    assert (finding.severity, finding.process) == (Severity.INFO, pid(200))
    assert finding.is_doubtful
    assert finding.summary.startswith(
        "main (100) waits for results of a Pool of which pool worker 0 (200) alone works at "
    )
    assert "its other 3 workers have had no task" in finding.summary
    assert "chunksize=1" in finding.advice


@pytest.mark.parametrize(
    "job",
    [
        pool(HAS_NO_TASK, HAS_NO_TASK, WORKS),
        pool(HAS_NO_TASK, HAS_NO_TASK, {SLEEPS: 0.3, Activity("idle", "something to do"): 0.7}),
        pool(HAS_NO_TASK, HAS_NO_TASK, HAS_NO_TASK, waits=False),
    ],
)
def test_a_pool_with_more_at_work_or_nobody_waiting_is_none(job: Snapshot) -> None:
    assert found(check, job) == []


HALF = {Activity("idle", "something to do"): 0.45, COMPUTES: 0.55}
AWAITS_POOL = {Activity("waiting", POOL_RESULTS, "queue", place="train.py:33 main"): 0.97}
CALM = history({(100, "cpu_percent"): [Point(NOW_S - n, 2.0) for n in range(30, 0, -1)]})


def uneven(
    *workers: dict[Activity, float], main_waits: dict[Activity, float] = AWAITS_POOL
) -> Snapshot:
    job = [process(200 + n, "pool-worker", label=f"pool worker {n}") for n in range(len(workers))]
    seen = {f"p{200 + n}": each for n, each in enumerate(workers)}
    return with_shares(snapshot_of(main(), *job), p100=main_waits, **seen)


def test_a_pool_whose_workers_have_no_task_in_turn_is_reported_with_how_many_work() -> None:
    finding = only(check, uneven(HALF, HALF, HALF), CALM)

    assert finding.summary == (
        "the 3 workers of the Pool of main (100) have no task 45% of the time, while it waits 100% "
        "of the time for their results: 1.7 of them work at a time at train.py:30 step"
    )
    assert finding.advice.startswith("Pass chunksize=1")


@pytest.mark.parametrize(
    "job",
    [
        uneven(HALF, HALF, main_waits={SLEEPS: 0.5, **AWAITS_POOL}),
        uneven(WORKS, WORKS, HALF),
        uneven(HALF),
    ],
    ids=["main does something else", "nearly all work", "one worker"],
)
def test_a_pool_that_is_as_even_as_it_can_be_is_none(job: Snapshot) -> None:
    assert found(check, job, CALM) == []


def test_a_pool_that_has_lost_a_call_is_not_uneven() -> None:
    """No worker has had a task since: what main waits for is no slow task."""
    job = uneven(HALF, HALF)
    own, *workers = job.processes
    reads = WaitedOn("pipe-read", "read")
    result = ("threading.py:wait", "multiprocessing/pool.py:wait", "train.py:main:33")
    receives = ("multiprocessing/connection.py:recv", "multiprocessing/pool.py:_handle_results")
    idle = ("multiprocessing/queues.py:get", "multiprocessing/pool.py:worker")
    own = with_threads(
        own,
        [
            thread(100, *result, waits=WaitedOn("futex", "futex")),
            thread(101, "multiprocessing/pool.py:_handle_tasks"),
            thread(102, *receives, waits=reads),
        ],
    )
    workers = [with_threads(each, [thread(each.pid, *idle, waits=reads)]) for each in workers]

    assert found(check, job, CALM)
    assert found(check, replace(job, processes=(own, *workers)), CALM) == []


QUARTER = {Activity("idle", "something to do"): 0.72, COMPUTES: 0.28}


def awaiting(
    what: str, *workers: dict[Activity, float], about: str = "32, submit", line: int = 33
) -> Snapshot:
    """Main that waits for results at train.py:33, where its source has such a wait at a line."""
    text = "return future.result()"
    mark = Mark("awaits-task", "/home/me/train.py", "main", about, Statement(line, text))
    waits = {Activity("waiting", what, "queue", place="train.py:33 main"): 0.8, COMPUTES: 0.2}
    return replace(uneven(*workers, main_waits=waits), marks=(mark,))


@pytest.mark.parametrize("count", [3, 4])
def test_a_main_that_awaits_each_result_before_the_next_task_is_named(count: int) -> None:
    job = awaiting(FUTURE_RESULT, *[QUARTER] * count)
    finding = only(check, job, CALM)

    assert (finding.subject, finding.is_doubtful) == ("one at a time", False)
    assert finding.summary == (
        "main (100) awaits the result of each task at train.py:33 main right after submit() in "
        f"line 32, before it starts the next one: only one of its {count} workers works at a time, "
        "at train.py:30 step"
    )
    assert "`return future.result()` waits until the task is done" in finding.cause
    assert finding.advice.startswith("Start all tasks first")


def test_a_pool_that_applies_one_task_after_the_other_is_named() -> None:
    idle = {Activity("idle", "something to do"): 0.95, COMPUTES: 0.05}
    finding = only(check, awaiting(POOL_RESULTS, *[idle] * 12, about="33, apply"), CALM)

    assert "awaits the result of each task at train.py:33 main, before it" in finding.summary
    assert finding.advice.startswith("apply() returns when its task is done")


@pytest.mark.parametrize(
    "job",
    [
        awaiting(FUTURE_RESULT, QUARTER, QUARTER, QUARTER, line=50),
        awaiting(FUTURE_RESULT, QUARTER),
        awaiting(FUTURE_RESULT, {COMPUTES: 1.0}, {COMPUTES: 1.0}),
        awaiting("an item of a queue", QUARTER, QUARTER, QUARTER),
    ],
    ids=["another line", "one worker", "both work", "another wait"],
)
def test_results_that_are_not_awaited_one_by_one_are_none(job: Snapshot) -> None:
    assert found(check, job, CALM) == []


def test_threads_that_await_a_task_each_have_several_under_way() -> None:
    job = awaiting(FUTURE_RESULT, QUARTER, QUARTER, QUARTER)
    own = ("threading.py:wait", "concurrent/futures/_base.py:result", "train.py:main:33")
    threads = [thread(100, *own), thread(101, *own)]
    several = replace(job, processes=(main(threads=threads), *job.processes[1:]))

    assert found(check, several, CALM) == []


def test_an_executor_with_few_tasks_under_way_is_named_without_chunks() -> None:
    waits = {Activity("waiting", FUTURE_RESULT, "thread", place="train.py:33 main"): 0.97}
    finding = only(check, uneven(HALF, HALF, HALF, main_waits=waits), CALM)

    assert finding.summary.startswith("the 3 workers of the executor of main (100) have no task")
    assert "chunk" not in finding.cause + finding.advice


ON_GPU: dict[str, Any] = {"more": {"gpus": (GpuUse(0, 1 << 30),)}}
NCCL = MapSample(900, 65_530, 0, ("libnccl.so.2",), NOW_S)
FOR_GPU = Activity("spinning", "", "gpu", place="train.py:44 step")
IMPORTING = Activity("computing", IMPORTS, place="train.py:3 <module>")
BACKWARD = Mark("backward", "/home/me/train.py", "step", "", Statement(40, "loss.backward()"))


def gpu_ranks(
    mine: dict[Activity, float], other: dict[Activity, float], *, trains: bool = True
) -> Snapshot:
    """Rank 0, which computes, and two others that launch kernels."""
    job = [
        process(n, "rank", label=f"rank {n - 200}", maps=NCCL, **ON_GPU) for n in (200, 201, 202)
    ]
    seen = snapshot_of(main(), *job, marks=(BACKWARD,) if trains else ())
    return with_shares(seen, p200=mine, p201=other, p202=other)


def test_a_rank_that_computes_while_the_others_wait_for_their_gpus_is_named() -> None:
    finding = only(check, gpu_ranks({SAVES: 1.0}, {FOR_GPU: 0.8, COMPUTES: 0.2}))

    assert finding.process == pid(200)
    assert finding.summary == (
        "rank 1 (201) and rank 2 (202) wait 80% of the time for the GPU, most likely in NCCL, for "
        "rank 0 (200), which works at train.py:55 save"
    )
    assert finding.cause.startswith("A collective of NCCL is a kernel on each GPU")
    assert "at least 20% of its present time" in finding.evidence[-1]


def test_a_rank_that_computes_longer_in_the_function_of_the_others_has_more_data() -> None:
    elsewhere = COMPUTES._replace(place="train.py:33 step")

    finding = only(check, gpu_ranks({COMPUTES: 1.0}, {FOR_GPU: 0.8, elsewhere: 0.2}))

    assert "which has more to compute at train.py:30 step" in finding.summary
    assert "its part of the data is larger" in finding.cause


def test_what_ranks_did_while_they_started_does_not_count() -> None:
    """Of a minute, all of them spent half in imports."""
    first = gpu_ranks({IMPORTING: 1.0}, {IMPORTING: 1.0})
    later = gpu_ranks({SAVES: 1.0}, {FOR_GPU: 0.8, COMPUTES: 0.2})
    accounts = dict(later.account.processes)
    for identity, account in accounts.items():
        start = first.account.processes[identity].uncounted[0].buckets[:6]
        thread_now = account.uncounted[0]
        both = thread_now._replace(buckets=(*start, *thread_now.buckets[6:]))
        accounts[identity] = replace(account, uncounted=(both,))
    job = replace(later, account=replace(later.account, processes=accounts))

    assert "wait 80% of the time for the GPU" in only(check, job).summary


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param(gpu_ranks({FOR_GPU: 0.9}, {FOR_GPU: 0.9}), id="long steps on all GPUs"),
        pytest.param(
            gpu_ranks({FOR_GPU: 0.3, COMPUTES: 0.7}, {FOR_GPU: 0.8, COMPUTES: 0.2}),
            id="it has to wait, too",
        ),
        pytest.param(
            gpu_ranks({COMPUTES: 1.0}, {FOR_GPU: 0.45, COMPUTES: 0.55}), id="all compute much"
        ),
        pytest.param(
            gpu_ranks({COMPUTES: 1.0}, {FOR_GPU: 0.8, COMPUTES: 0.2}, trains=False),
            id="no training, whose ranks may never meet",
        ),
        pytest.param(
            gpu_ranks({NO_CORE: 0.8, COMPUTES: 0.2}, {FOR_GPU: 0.8, COMPUTES: 0.2}),
            id="it waits for a core",
        ),
    ],
)
def test_ranks_on_gpus_that_work_alike_have_no_straggler(healthy: Snapshot) -> None:
    assert found(check, healthy) == []


TICK = Activity("sleeping", place="bots.py:67 run")
LOOKS = Activity("computing", place="bots.py:31 newest")


@pytest.mark.parametrize(
    ("slow", "stack", "is_told"),
    [
        pytest.param({LOOKS: 0.5, NO_CORE: 0.5}, "bots.py:run:60", True, id="behind"),
        pytest.param({LOOKS: 0.8, TICK: 0.2}, "bots.py:run:60", False, id="sleeps at times"),
        pytest.param({LOOKS: 1.0}, "game.py:play:60", False, id="another loop"),
    ],
)
def test_the_one_that_never_sleeps_in_the_loop_of_the_others_is_behind_its_pace(
    slow: dict[Activity, float], stack: str, is_told: bool
) -> None:
    own = thread(201, "bots.py:newest:31", stack, state="R", stack_age_s=0.0)
    bots = [
        process(200, "spawned", label="bot a"),
        process(201, "spawned", label="bot b", threads=[own]),
        process(202, "spawned", label="bot c"),
    ]
    paced = {TICK: 0.98, COMPUTES: 0.02}
    game = with_shares(
        snapshot_of(main(), *bots), p100={SLEEPS: 1.0}, p200=paced, p201=slow, p202=paced
    )

    findings = found(check, game)

    assert [each.subject for each in findings] == ["pace"] * is_told
    if is_told:
        assert findings[0].process == pid(201)
        assert findings[0].summary == (
            "bot b (201) works all the time at bots.py:31 newest, in the loop of run() in which "
            "bot a (200) and bot c (202) sleep most of the time at bots.py:67 run"
        )
