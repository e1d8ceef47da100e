"""Values that several rules need are derived once for a snapshot, and again for the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis import stack_patterns
from mpwatch.diagnose.analysis.idle_time import quiet_s, wait_share
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.stack_patterns import (
    BUCKETS,
    BUFFERS,
    calls,
    collective_of,
    threads_calling,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.engine import RULES
from mpwatch.model.history import History, Point
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import Frame, WaitedOn
from mpwatch.model.snapshot import LogEntry, Process
from tests.builders.snapshots import (
    IDLE_FEEDER,
    IDLE_WORKER,
    MAIN,
    WAITING_MAIN,
    fds,
    frames,
    log,
    main,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    thread,
)

WORKERS = 64


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[object]]:
    """Counts calls of a function of a module: one entry each."""

    def count(module: Any, name: str) -> list[object]:
        seen: list[object] = []
        really = getattr(module, name)

        def note(*arguments: Any, **keywords: Any) -> Any:
            seen.append(arguments)
            return really(*arguments, **keywords)

        monkeypatch.setattr(module, name, note)
        return seen

    return count


def loader_job() -> tuple[Process, ...]:
    """Main with a feeder thread for each worker; all idle, equal stacks are one tuple."""
    idle, feeder = frames(*IDLE_WORKER), frames(*IDLE_FEEDER)
    threads = [thread(MAIN, *WAITING_MAIN)]
    threads += [replace(thread(1000 + n), stack=feeder) for n in range(WORKERS)]
    workers = (
        process(200 + n, threads=[replace(thread(200 + n), stack=idle)], worker_id=n)
        for n in range(WORKERS)
    )
    return main(threads=threads), *workers


def test_a_value_is_derived_once_for_each_index_and_each_argument() -> None:
    made: list[tuple[float, int]] = []

    @derived
    def doubled(index: Index, number: int = 0) -> float:
        made.append((index.snapshot.at_s, number))
        return 2 * index.snapshot.at_s + number

    first, second = Index(snapshot_of(main(), at_s=1.0)), Index(snapshot_of(main(), at_s=2.0))
    assert [doubled(first), doubled(first), doubled(first, 7), doubled(first, 7)] == [2, 2, 9, 9]
    assert [doubled(second), doubled(first)] == [4, 2]
    assert made == [(1.0, 0), (1.0, 7), (2.0, 0)]


def test_a_function_that_raises_is_called_again() -> None:
    calls = iter((ValueError("once"), 3))

    @derived
    def sometimes(index: Index) -> int:
        value = next(calls)
        if isinstance(value, ValueError):
            raise value
        return value

    index = Index(snapshot_of(main()))
    with pytest.raises(ValueError, match="once"):
        sometimes(index)
    assert sometimes(index) == 3


def test_idle_times_of_the_index_equal_computed_ones() -> None:
    def index(still_s: float, *cpu_percent: float) -> Index:
        series = [Point(float(n), value) for n, value in enumerate(cpu_percent)]
        job = snapshot_of(main(threads=[thread(MAIN, still_s=still_s)]))
        return Index(job, History({(pid(MAIN), "cpu_percent"): series}))

    first, second = index(9.0, 0.0, 0.0, 0.0), index(0.5, 0.0, 50.0, 50.0)
    assert [quiet_s(main(), each) for each in (first, second, first)] == [9.0, 0.5, 9.0]


def test_indexed_answers_equal_those_of_a_search_frame_by_frame() -> None:
    stack = frames("a/queues.py:Queue.get", "b.py:f", "c/distributed_c10d.py:all_reduce")

    assert calls(stack, "queues.py:get", ":f")
    assert not calls(stack, ":f", "queues.py:get")
    assert not calls(stack, "eues.py:get")
    assert calls(stack, "b.py:")
    assert not calls((), "b.py:")
    assert collective_of(stack) == "all_reduce"
    inner = frames("a/queues.py:get")
    assert user_frame(inner) is None
    assert user_frame((*inner, Frame("step", "/home/me/own.py", 3))) == Frame(
        "step", "/home/me/own.py", 3
    )


DDP = "lib/torch/nn/parallel/distributed.py"
ZERO = "lib/torch/distributed/optim/zero_redundancy_optimizer.py"


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ((f"{DDP}:_pre_forward", f"{DDP}:forward"), BUCKETS),
        ((f"{DDP}:_sync_module_buffers", f"{DDP}:_pre_forward"), BUFFERS),
        ((f"{DDP}:main_hook", "lib/torch/distributed/algorithms/join.py:__exit__"), BUCKETS),
        (
            (f"{ZERO}:<listcomp>", f"{ZERO}:_sync_params"),
            "the broadcast of parameters after a step",
        ),
        (
            (
                "lib/torch/_ops.py:__call__",
                "lib/torch/distributed/_functional_collectives.py:wait_tensor",
            ),
            "a functional collective",
        ),
        # At work in a frame of its own, or in a function of the program.
        (("lib/torch/nn/modules/linear.py:forward", f"{DDP}:_pre_forward"), None),
        (("lib/torch/_ops.py:__call__", "/home/me/own.py:wait_tensor"), None),
        (("/home/me/own.py:_pre_forward", f"{DDP}:forward"), None),
    ],
)
def test_functions_of_torch_that_wait_for_ranks_in_native_code_are_known(
    stack: tuple[str, ...], name: str | None
) -> None:
    assert collective_of(frames(*stack, "/home/me/own.py:step")) == name


def test_each_distinct_stack_is_searched_once_for_all_threads_that_have_it(
    counted: Callable[[Any, str], list[object]],
) -> None:
    index = Index(snapshot_of(*loader_job()))
    searched = counted(stack_patterns, "calls")

    feeders = threads_calling(index, "queues.py:_feed")

    assert [each.tid for _, each in feeders] == [1000 + n for n in range(WORKERS)]
    assert len(searched) == 3


def test_threads_come_in_the_order_of_the_tree() -> None:
    one, other = frames("a.py:get"), frames("b.py:get")
    job = [process(200 + n, threads=[replace(thread(200 + n), stack=s)]) for n, s in
           enumerate((one, other, one))]  # fmt: skip

    assert [p.pid for p, _ in threads_calling(Index(snapshot_of(*job)), ":get")] == [200, 201, 202]


def test_a_rule_that_needs_few_points_does_not_copy_the_whole_history() -> None:
    class Watched(list[Point]):
        """Counts the points that are read one by one."""

        touched = 0

        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            self.touched += len(found) if isinstance(index, slice) else 1
            return found

        def __iter__(self) -> Iterator[Point]:
            self.touched += len(self)
            return super().__iter__()

    series = Watched(Point(float(second), 1.0) for second in range(240))
    wait_share(main(), History({(pid(MAIN), "loader_wait"): series}), over_s=30.0)

    assert series.touched < 60


def test_edges_follow_pipes_that_change_hands() -> None:
    waiting = thread(200, waits=WaitedOn("pipe-read", "read", ("pipe:[7]",), (3,)))
    reader = process(200, "spawned", threads=[waiting], fds=fds(1, links=[pipe(3, 7, False)]))
    writer = process(201, "spawned", fds=fds(1, links=[pipe(4, 7, True)]))
    idle = process(201, "spawned", fds=fds(0, links=[]))
    jobs = [
        snapshot_of(main(fds=fds(0, links=[])), reader, other) for other in (writer, idle, writer)
    ]

    graphs = [wait_graph(Index(job)) for job in jobs]
    providers = [[edge.providers for edge in graph.edges] for graph in graphs]
    assert providers == [[(pid(201),)], [()], [(pid(201),)]]


def test_edges_follow_a_semaphore_that_another_process_maps() -> None:
    waiting = thread(200, waits=WaitedOn("semaphore", "futex", segment=SegmentId(9, 5)))
    waiter = process(200, "spawned", threads=[waiting])
    semaphore = segment(5, kind="semaphore", mappers=(pid(200), pid(201)))
    alone = replace(semaphore, mappers=(pid(200),))

    for shared in (semaphore, alone, semaphore):
        job = snapshot_of(main(), waiter, process(201, "spawned"), segments=(shared,))
        assert wait_graph(Index(job)).edges[0].providers == shared.mappers[1:]


def test_all_rules_together_search_the_log_once() -> None:
    class Log(tuple[LogEntry, ...]):
        """Counts how often it is searched."""

        searches = 0

        def __iter__(self) -> Iterator[LogEntry]:
            type(self).searches += 1
            return super().__iter__()

    entries = Log(log("start", MAIN, "started", method="forkserver", fds=3) for _ in range(2000))
    index = Index(replace(snapshot_of(*loader_job()), log=entries))
    Log.searches = 0
    for rule in RULES:
        list(rule.check(index))

    assert Log.searches == 1
