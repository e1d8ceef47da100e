"""What is not worked out again while nothing changed: counted, with real rules and indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from mpwatch.describe import frames as described_frames
from mpwatch.diagnose.analysis import idle_time, pipes, stack_patterns
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.pipes import pipe_ends
from mpwatch.diagnose.analysis.stack_patterns import (
    STACKS_KEPT,
    calls,
    collective_of,
    own_frames,
    shape_of,
    threads_calling,
    user_frame,
)
from mpwatch.diagnose.analysis.waits import chains as waits
from mpwatch.diagnose.analysis.waits import edges
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.engine import Engine
from mpwatch.model.history import History, Point
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import FdLink, Frame, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.waits import WaitGraph
from tests.unit.diagnose.worlds import (
    IDLE_FEEDER,
    IDLE_WORKER,
    MAIN,
    NO_HISTORY,
    WAITING_MAIN,
    fds,
    frames,
    main,
    pid,
    pipe,
    process,
    segment,
    thread,
    world,
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


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_patterns, "_stacks", {})


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


def test_a_stack_is_looked_through_once_however_many_rules_ask(
    counted: Callable[[Any, str], list[object]],
) -> None:
    looked = counted(described_frames, "own_frames")
    engine, job = Engine(), loader_job()

    for second in range(6):
        snapshot = world(*job, at_s=100.0 + second)
        engine.look(replace(snapshot, waits=engine.waits(snapshot)), NO_HISTORY)

    # One of main, one of its feeders, one of the workers; parts of them may be looked at as well.
    assert 3 <= len(looked) <= 6


def test_what_is_known_of_stacks_is_bounded_and_of_lists_nothing_is_kept() -> None:
    for line in range(STACKS_KEPT + 10):
        own_frames(frames(f"train.py:step:{line}"))
    assert 0 < len(stack_patterns._stacks) <= STACKS_KEPT

    stack = list(frames("train.py:step"))
    assert not calls(stack, "queues.py:get")
    stack += frames("multiprocessing/queues.py:get")
    assert calls(stack, "queues.py:get")


def test_a_stack_that_takes_the_place_of_another_in_memory_is_another() -> None:
    for _ in range(200):
        for stack, shape in ((IDLE_WORKER, "worker-idle"), (IDLE_FEEDER, "feeder-idle")):
            assert shape_of(frames(*stack)) == shape


def test_quick_answers_are_those_of_a_search_frame_by_frame() -> None:
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


def test_all_threads_with_one_stack_are_asked_about_by_one_look(
    counted: Callable[[Any, str], list[object]],
) -> None:
    snapshot = world(*loader_job())
    asked = counted(stack_patterns, "calls")

    feeders = threads_calling(snapshot, "queues.py:_feed")

    assert [each.tid for _, each in feeders] == [1000 + n for n in range(WORKERS)]
    assert len(asked) == 3


def test_threads_come_in_the_order_of_the_tree() -> None:
    one, other = frames("a.py:get"), frames("b.py:get")
    job = [process(200 + n, threads=[replace(thread(200 + n), stack=s)]) for n, s in
           enumerate((one, other, one))]  # fmt: skip

    assert [p.pid for p, _ in threads_calling(world(*job), ":get")] == [200, 201, 202]


def test_how_long_a_process_stands_is_worked_out_once_a_look(
    counted: Callable[[Any, str], list[object]],
) -> None:
    worked_out = counted(idle_time, "_quiet_s")
    job = main(threads=[thread(MAIN, still_s=9.0)])

    def history(*values: float) -> History:
        series = [Point(float(n), value) for n, value in enumerate(values)]
        return History({(pid(MAIN), "cpu_percent"): series})

    first, second = history(0.0, 0.0, 0.0), history(0.0, 50.0, 50.0)
    assert {quiet_s(job, first) for _ in range(12)} == {9.0}
    assert len(worked_out) == 1
    assert quiet_s(replace(job, threads=(thread(MAIN, still_s=0.5),)), second) == 0.5
    assert len(worked_out) == 2


def test_a_tensor_that_comes_and_goes_leaves_the_pipes_as_they_were(
    counted: Callable[[Any, str], list[object]],
) -> None:
    joined = counted(pipes, "_joined")

    def holding(*links: FdLink) -> Snapshot:
        return world(process(300, fds=fds(9, links=links)), process(301, fds=fds(9, links=[ends])))

    ends = pipe(3, 1, False)
    tensor = FdLink(9, "torch", "/dev/shm/torch_1_2", 77, None)
    first = pipe_ends(holding(pipe(4, 1, True)))
    assert pipe_ends(holding(pipe(4, 1, True), tensor)) is first
    assert pipe_ends(holding(pipe(4, 1, True))) is first
    assert len(joined) == 1

    assert pipe_ends(holding(pipe(4, 2, True))).writers == {2: (pid(300),)}
    assert len(joined) == 2


def test_users_of_semaphores_are_found_out_when_one_is_waited_for(
    counted: Callable[[Any, str], list[object]],
) -> None:
    indexed = counted(edges, "_semaphore_users")

    wait_graph(world(*loader_job()))

    assert indexed == []


def test_a_rule_that_needs_few_points_does_not_copy_the_whole_past() -> None:
    class Watched(list[Point]):
        """Counts the points that are handed out one by one."""

        touched = 0

        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            self.touched += len(found) if isinstance(index, slice) else 1
            return found

        def __iter__(self) -> Iterator[Point]:
            self.touched += len(self)
            return super().__iter__()

    series = Watched(Point(float(second), 1.0) for second in range(240))
    idle_time.wait_share(main(), History({(pid(MAIN), "loader_wait"): series}), over_s=30.0)

    assert series.touched < 60


def found_afresh(monkeypatch: pytest.MonkeyPatch, job: Snapshot) -> WaitGraph:
    """The waits of a job nothing is known of."""
    with monkeypatch.context() as patched:
        patched.setattr(waits, "_before", (None, {}))
        return wait_graph(job)


def test_edges_of_processes_at_rest_are_found_once(
    counted: Callable[[Any, str], list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = loader_job()
    asked = counted(waits, "edges_of")
    first = world(*job)
    wait_graph(first)
    asked.clear()
    moved = replace(job[5], cpu_percent=50.0)
    second = world(*job[:5], moved, *job[6:])
    graph = wait_graph(second)

    # Main's follow from its workers, so they are found each time.
    assert len(asked) == 2
    assert graph == found_afresh(monkeypatch, second)
    assert len(graph.edges) == 2 * WORKERS + 1


def test_edges_follow_pipes_that_change_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = thread(200, waits=WaitedOn("pipe-read", "read", ("pipe:[7]",), (3,)))
    reader = process(200, "spawned", threads=[waiting], fds=fds(1, links=[pipe(3, 7, False)]))
    writer = process(201, "spawned", fds=fds(1, links=[pipe(4, 7, True)]))
    idle = process(201, "spawned", fds=fds(0, links=[]))
    jobs = [world(main(fds=fds(0, links=[])), reader, other) for other in (writer, idle, writer)]

    providers = []
    for job in jobs:
        graph = wait_graph(job)
        assert graph == found_afresh(monkeypatch, job)
        providers.append([edge.providers for edge in graph.edges])
    assert providers == [[(pid(201),)], [()], [(pid(201),)]]


def test_edges_follow_a_semaphore_that_another_process_maps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = thread(200, waits=WaitedOn("semaphore", "futex", segment=SegmentId(9, 5)))
    waiter = process(200, "spawned", threads=[waiting])
    semaphore = segment(5, kind="semaphore", mappers=(pid(200), pid(201)))
    alone = replace(semaphore, mappers=(pid(200),))

    for shared in (semaphore, alone, semaphore):
        job = world(main(), waiter, process(201, "spawned"), segments=(shared,))
        assert wait_graph(job) == found_afresh(monkeypatch, job)
        assert wait_graph(job).edges[0].providers == shared.mappers[1:]
