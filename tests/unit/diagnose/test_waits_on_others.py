"""Waits for semaphores, children and the other ranks."""

from __future__ import annotations

from typing import Any

from mpwatch.diagnose.waits import wait_graph
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.segments import SegmentUse
from mpwatch.model.snapshot import Process, Thread
from tests.unit.diagnose.waiting import C10D, chain
from tests.unit.diagnose.worlds import (
    MAIN,
    fds,
    gone,
    main,
    pid,
    process,
    segment,
    thread,
    world,
)

SEMAPHORE = SegmentId(9, 77)


def locked(number: int, *more: Thread) -> Process:
    wait = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=SEMAPHORE, value=0)
    return process(
        number,
        "spawned",
        fds=fds(3, links=()),
        segments=(),
        threads=[thread(number, waits=wait), *more],
    )


def semaphore(*users: int) -> Any:
    return segment(77, kind="semaphore", mappers=tuple(map(pid, users)))


def test_a_semaphore_leads_to_those_that_map_it() -> None:
    job = world(locked(300), locked(301), segments=(semaphore(300, 301),))

    found = chain(job)

    assert found.verdict == "cycle"
    assert "semaphore 9:77" in found.sentence


def test_a_semaphore_nobody_else_maps_is_a_dead_end() -> None:
    assert chain(world(locked(300), segments=(semaphore(300),))).verdict == "dead-end"


def test_a_semaphore_that_another_thread_may_release_is_left_open() -> None:
    two = locked(300, thread(301, "data.py:refill"))

    assert chain(world(two, segments=(semaphore(300),))).verdict == "unknown"


def test_users_of_a_semaphore_are_known_from_their_own_mappings_as_well() -> None:
    use = SegmentUse(SEMAPHORE, "/dev/shm/sem.x", "semaphore", False, None, (), ((1, 2),))
    busy = process(
        301,
        "spawned",
        fds=fds(3, links=()),
        segments=(use,),
        threads=[thread(301, state="R")],
    )

    assert chain(world(locked(300), busy)).verdict == "progress"


def test_a_child_that_is_a_zombie_or_gone_moves_no_more() -> None:
    joins = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))])

    assert chain(world(joins, process(300, "spawned", state="Z"))).verdict == "dead-end"
    dead = process(300, "spawned", ended=gone(300, signal=9))
    found = chain(world(joins, dead))
    assert (found.verdict, "is gone" in found.conclusion) == ("dead-end", True)


def test_a_wait_for_any_child_looks_at_all_of_them() -> None:
    joins = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("any child",)))])
    busy = process(300, "spawned", threads=[thread(300, state="S", cpu_percent=50.0)])

    assert chain(world(joins, busy)).verdict == "progress"


def rank(number: int, *stack: str, **more: Any) -> Process:
    wait = WaitedOn("futex", "futex")
    threads = [thread(300 + number, *stack, waits=wait), thread(900 + number)]
    return process(
        300 + number, "rank", label=f"rank {number}", rank=number, threads=threads, **more
    )


def test_ranks_in_a_collective_wait_for_the_one_that_is_not() -> None:
    late = process(302, "rank", label="rank 2", threads=[thread(302, "train.py:save:9", state="R")])
    job = world(main(), rank(0, f"{C10D}:all_reduce"), rank(1, f"{C10D}:all_reduce"), late)

    chains = wait_graph(job).chains

    assert [found.verdict for found in chains] == ["progress", "progress"]
    assert all("the other ranks in all_reduce <- rank 2 runs" in c.sentence for c in chains)


def test_ranks_that_are_all_in_one_collective_form_a_circle() -> None:
    job = world(main(), rank(0, f"{C10D}:barrier"), rank(1, f"{C10D}:barrier"))

    assert chain(job).verdict == "cycle"


def test_who_looks_for_a_lock_file_again_and_again_does_not_wake_up_by_itself() -> None:
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.03)
    stack = (
        "site-packages/filelock/_api.py:_poll_until_acquired",
        "site-packages/filelock/_api.py:acquire",
        "train.py:download:13",
    )
    rank = process(300, "rank", fds=fds(3, links=()), threads=[thread(300, *stack, waits=sleeps)])

    found = chain(world(rank))

    assert found.verdict == "unknown"
    assert "waits for a lock file, train.py:13 download" in found.sentence
    assert "has to be removed" in found.conclusion
