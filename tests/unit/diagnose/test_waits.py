from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Loader
from tests.builders.snapshots import (
    FETCHING_WORKER,
    IDLE_WORKER,
    MAIN,
    WAITING_MAIN,
    fds,
    main,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    thread,
)
from tests.builders.waits import WORK, chain, reads, waiting_main, worker


def test_a_main_that_waits_for_a_busy_worker_makes_progress() -> None:
    busy = thread(201, *FETCHING_WORKER, state="R", still_s=None)

    found = chain(snapshot_of(waiting_main(), worker(0), worker(1, busy)))

    assert found.verdict == "progress"
    assert found.sentence == (
        "main waits for a batch on pipe 500 <- worker 1 runs, data.py:31 decode"
    )


def test_a_lost_batch_is_a_cycle_from_system_calls_alone() -> None:
    found = chain(snapshot_of(waiting_main(), worker(0), worker(1)))

    assert found.verdict == "cycle"
    assert found.sentence == (
        "main waits for a batch on pipe 500 <- worker 0 waits for work on pipe 600"
    )
    assert "for 84 s" in found.conclusion


def test_a_cycle_seen_once_has_no_verdict_yet() -> None:
    now = snapshot_of(waiting_main(), worker(0, thread(200, waits=reads(WORK), still_s=None)))

    assert chain(now).verdict == "unknown"


def test_a_short_cycle_makes_progress() -> None:
    assert chain(snapshot_of(waiting_main(still_s=0.5), worker(0))).verdict == "progress"


def test_the_hook_names_batch_and_owner() -> None:
    loader = Loader(
        pid(MAIN), 1, 2, next_task=417, owner_worker=1, outstanding=2, waiting_since_s=84.0
    )
    job = snapshot_of(
        waiting_main(*WAITING_MAIN), worker(0), worker(1, stack=IDLE_WORKER), loaders=(loader,)
    )

    assert chain(job).sentence == "main waits for batch 417 <- worker 1 waits for work"


def test_a_loader_whose_owner_is_unknown_falls_back_to_all_workers() -> None:
    loader = Loader(pid(MAIN), 1, 2, owner_worker=None, waiting_since_s=84.0)
    other = Loader(pid(MAIN), 2, 2, owner_worker=9, waiting_since_s=84.0)
    job = snapshot_of(waiting_main(*WAITING_MAIN), worker(0), loaders=(loader, other))

    assert chain(job).sentence.startswith("main waits for a batch <- worker 0")


def test_a_lock_locked_since_the_fork_is_a_dead_end() -> None:
    locked = thread(
        200,
        "data.py:__getitem__:12",
        *FETCHING_WORKER[2:],
        waits=WaitedOn("futex", "futex", ("futex 0x7f",), value=0),
    )

    found = chain(snapshot_of(waiting_main(*WAITING_MAIN), worker(0, locked)))

    assert found.verdict == "dead-end"
    assert "It does not exist here" in found.conclusion
    assert found.links[-1].name == "worker 0"


@pytest.mark.parametrize(
    ("wait", "verdict"),
    [
        (WaitedOn("futex", "futex", timeout_s=3.0), "progress"),
        (WaitedOn("timer", "nanosleep"), "progress"),
        (WaitedOn("socket-read", "recvfrom", ("socket:[9]",)), "unknown"),
        (WaitedOn("child", "wait4", ("pid 99999",)), "progress"),
        (WaitedOn("child", "wait4", ("pid x",)), "progress"),
    ],
)
def test_waits_that_are_no_fault_of_the_job(wait: WaitedOn, verdict: str) -> None:
    assert chain(snapshot_of(waiting_main(), worker(0, thread(200, waits=wait)))).verdict == verdict


def test_a_lock_in_a_process_with_other_threads_is_no_dead_end() -> None:
    both = worker(0, thread(200, waits=WaitedOn("futex", "futex")), thread(201, "data.py:refill"))

    assert chain(snapshot_of(waiting_main(), both)).verdict == "unknown"


def test_a_worker_in_disk_wait_has_an_unknown_end() -> None:
    disk = WaitedOn("disk", "read", ("/mnt/nfs/a.tar", "rpc_wait"))

    found = chain(snapshot_of(waiting_main(), worker(0, thread(200, waits=disk, state="D"))))

    assert found.verdict == "unknown"
    assert "/mnt/nfs/a.tar" in found.sentence
    assert "SIGKILL ends the wait only where the kernel allows that" in found.conclusion


def test_a_disk_wait_without_details_is_shown_as_one() -> None:
    found = chain(snapshot_of(waiting_main(), worker(0, thread(200, state="D"))))

    assert "a disk or driver" in found.sentence


@pytest.mark.parametrize(("state", "by"), [("T", "a signal"), ("t", "a debugger or tracer")])
def test_a_stopped_worker_is_ordinary_and_shows_how_to_continue_it(state: str, by: str) -> None:
    found = chain(snapshot_of(waiting_main(), worker(0, thread(200, state=state))))

    assert found.verdict == "ordinary"
    assert by in found.sentence
    assert "kill -CONT 200" in found.conclusion


def test_a_person_at_the_debugger_is_ordinary() -> None:
    held = main(threads=[thread(MAIN, "pdb.py:cmdloop", waits=WaitedOn("unknown", "read"))])

    graph = wait_graph(Index(snapshot_of(held)))

    assert [edge.is_ordinary for edge in graph.edges] == [True]
    assert graph.chains == ()


def test_idle_helpers_and_workers_make_edges_but_no_chains() -> None:
    tracker = process(
        900, "resource-tracker", threads=[thread(900, waits=WaitedOn("pipe-read", "read"))]
    )
    silent = process(901, "forkserver", threads=[thread(901)])
    running = main(
        fds=fds(3, links=[pipe(8, WORK, True)]), segments=(), threads=[thread(MAIN, state="R")]
    )

    graph = wait_graph(Index(snapshot_of(running, worker(0), tracker, silent)))

    assert graph.chains == ()
    assert [(edge.what, edge.is_ordinary) for edge in graph.edges] == [
        ("work on pipe 600", True),
        ("orders", True),
    ]


def test_a_wait_for_a_helper_is_ordinary() -> None:
    joins = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 900",)))])

    assert chain(snapshot_of(joins, process(900, "resource-tracker"))).verdict == "ordinary"


def test_native_threads_and_idle_threads_make_no_edges() -> None:
    busy = main(
        threads=[
            thread(MAIN, state="R"),
            thread(101, name="pt_autograd_0", waits=WaitedOn("futex", "futex")),
            thread(102, name="quiet"),
        ]
    )

    assert wait_graph(Index(snapshot_of(busy))).edges == ()


def test_a_process_of_which_nothing_is_known_ends_a_chain_as_unknown() -> None:
    job = snapshot_of(waiting_main(), worker(0, thread(200)))

    assert chain(job).verdict == "unknown"


def test_a_chain_that_is_the_end_of_another_is_shown_once() -> None:
    joins = process(
        300,
        "spawned",
        threads=[thread(300, waits=WaitedOn("child", "wait4", ("pid 301",)))],
    )
    last = process(301, "spawned", threads=[thread(301, waits=WaitedOn("timer", "nanosleep"))])
    top = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))])

    assert len(chain(snapshot_of(top, joins, last)).links) == 3


def test_a_holder_that_is_no_longer_in_the_snapshot_ends_a_chain() -> None:
    semaphore = SegmentId(9, 7)
    waits = WaitedOn("semaphore", "futex", segment=semaphore)
    stuck = main(threads=[thread(MAIN, waits=waits)], segments=(), fds=fds(3, links=()))
    shared = segment(7, kind="semaphore", mappers=(pid(MAIN), pid(999)))

    assert chain(snapshot_of(stuck, segments=(shared,))).links[-1].process == pid(MAIN)


def test_the_age_of_a_wait_is_the_time_it_was_for_the_same_thing() -> None:
    young = replace(worker(0).threads[0], waits_s=0.5)

    found = chain(snapshot_of(waiting_main(), worker(0, young)))

    assert found.verdict == "progress"
    assert found.links[-1].since_s == 0.5
