"""Observation where no thread can be started, as at RLIMIT_NPROC or pids.max."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from mpwatch.collect.job.reader import ReadRequest
from mpwatch.collect.own_threads import AT_LIMIT, OwnThreads
from mpwatch.collect.process.memory import Rollups
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StacksTaken
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import SourceRead
from mpwatch.observe.sources import oneshot
from mpwatch.observe.sources.attach_schedule import Injection
from mpwatch.observe.sources.observer import ObservationPlan, Observer
from mpwatch.observe.sources.on_demand import SourceReads
from mpwatch.observe.sources.stack_schedule import (
    StackRequest,
    StackRounds,
    StackSchedule,
    StackThreads,
)
from tests.builders.samples import MAIN, WORKER_0
from tests.builders.snapshots import process, snapshot_of
from tests.unit.collect.source.test_source_code import OWN, taken
from tests.unit.observe.sources.test_observer import World, run

Refuse = Callable[[bool], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Makes starts of threads fail, or succeed again."""
    start, is_refused = threading.Thread.start, False

    def begin(thread: threading.Thread) -> None:
        if is_refused and thread.name.startswith("mpwatch-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def switch(value: bool) -> None:
        nonlocal is_refused
        is_refused = value

    monkeypatch.setattr(threading.Thread, "start", begin)
    switch(True)
    return switch


def observing(world: World, **given: Any) -> Observer:
    return Observer(
        world,  # type: ignore[arg-type]
        ObservationPlan(1.0, lambda _: ReadRequest()),
        StackSchedule(StackRounds()),
        clock=world.clock,
        **given,
    )


def test_a_job_is_read_and_what_is_missing_is_said_until_threads_start_again(
    refuse: Refuse,
) -> None:
    world, shown = World(now_s=time.monotonic()), list[Snapshot]()
    observer = observing(world)

    run(observer, world, 5.0, shown.append)
    main = observer.snapshot().get(MAIN)
    assert AT_LIMIT in shown[-1].problems
    assert main is not None
    assert any("no thread could be started" in problem for problem in main.problems)
    assert not observer.is_taking

    refuse(False)
    run(observer, world, 10.0, shown.append)
    assert AT_LIMIT not in shown[-1].problems
    assert world.has_taken.wait(30.0)
    observer.close()


def test_a_dump_ends_without_stacks(refuse: Refuse) -> None:
    world = World()
    observer = observing(world)
    observer.step()

    oneshot.take_all_stacks(observer)

    assert AT_LIMIT in observer.snapshot().problems


def test_stacks_are_taken_by_the_threads_that_could_be_started(refuse: Refuse) -> None:
    world, taken = World(), list[StacksTaken]()
    threads = StackThreads(world, taken.append, threads=2)
    threads.take(StackRequest(MAIN))
    assert not threads.is_busy
    assert [each.problem for each in taken] == ["no thread could be started for it"]

    refuse(False)
    threads.take(StackRequest(MAIN))
    assert world.has_taken.wait(30.0)
    while threads.is_busy:
        time.sleep(0.001)
    assert [each.problem for each in taken[1:]] == [None]
    threads.stop()


def test_lines_that_could_not_be_read_are_read_later(refuse: Refuse, tmp_path: Any) -> None:
    file = tmp_path / "train.py"
    file.write_text("wait()\n")
    job = snapshot_of(process(OWN.pid, born_wall_s=time.time()))
    found: list[SourceRead] = []
    reads = SourceReads(found.append)
    reads.received(taken(Frame("<module>", str(file), 1)))
    reads.start_due(job)
    reads.wait(600.0)
    assert found == []

    refuse(False)
    reads.start_due(job)
    reads.wait(30.0)
    assert [line.statement.text for line in found[0].lines] == ["wait()"]
    reads.stop()


def test_an_injection_that_could_not_begin_is_due_at_the_next_reading(refuse: Refuse) -> None:
    world, injected = World(), list[ProcessId]()
    has_all = threading.Event()

    def inject(samples: Any, report: object, *, again: bool = False) -> None:
        injected.extend(each.process for each in samples)
        has_all.set()

    injection = Injection(inject, is_allowed=True)
    observer = observing(world, injection=injection)
    observer.step()
    assert injection.under_way(world.now_s) == frozenset()

    refuse(False)
    run(observer, world, 3.0)
    assert has_all.wait(30.0)
    assert set(injected) == {MAIN, WORKER_0}
    observer.close()


def test_memory_is_not_read_instead_of_waited_for(refuse: Refuse) -> None:
    assert Rollups("/proc", [1, 2], 0.0).get(1) is None


def test_what_could_not_be_started_is_told_until_that_could() -> None:
    threads, blocked = OwnThreads(), threading.Event()
    with pytest.MonkeyPatch.context() as limited:
        limited.setattr(threading.Thread, "start", refusing)
        assert threads.start(blocked.wait, "mpwatch-stacks") is None
    assert threads.start(int, "mpwatch-other") is not None
    assert threads.problem is not None

    assert threads.start(int, "mpwatch-stacks") is not None
    assert threads.problem is None


def refusing(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
