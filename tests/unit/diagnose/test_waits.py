from __future__ import annotations

from typing import Any

import pytest

from mpwatch.diagnose.pipes import inode_of, pipe_ends
from mpwatch.diagnose.waits import wait_graph
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import FdLink, WaitedOn
from mpwatch.model.snapshot import Loader, Process, Snapshot, Thread
from mpwatch.model.waits import WaitChain
from tests.unit.diagnose.worlds import (
    FETCHING_WORKER,
    IDLE_FEEDER,
    IDLE_WORKER,
    MAIN,
    WAITING_MAIN,
    fds,
    gone,
    main,
    pid,
    pipe,
    process,
    segment,
    thread,
    world,
)

DATA, WORK = 500, 600
C10D = "torch/distributed/distributed_c10d.py"


def reads(*inodes: int, timeout_s: float | None = 5.0) -> WaitedOn:
    targets = tuple(f"pipe:[{inode}]" for inode in inodes)
    return WaitedOn("poll", "poll", targets, timeout_s=timeout_s)


def waiting_main(*stack: str, still_s: float = 84.0, **more: Any) -> Process:
    links = [pipe(5, DATA, False), pipe(6, DATA, True), pipe(8, WORK, True)]
    return main(
        fds=fds(20, links=links),
        segments=(),
        threads=[thread(MAIN, *stack, waits=reads(DATA), still_s=still_s)],
        **more,
    )


def worker(number: int = 0, *threads: Thread, stack: tuple[str, ...] = (), **more: Any) -> Process:
    own = 200 + number
    links = [pipe(5, DATA, False), pipe(6, DATA, True), pipe(7, WORK, False), pipe(8, WORK, True)]
    idle = thread(own, *stack, waits=reads(WORK), still_s=84.0)
    return process(
        own,
        label=f"worker {number}",
        worker_id=number,
        start_method="fork",
        fds=fds(20, links=links),
        segments=(),
        threads=threads or [idle],
        **more,
    )


def chain(snapshot: Snapshot) -> WaitChain:
    chains = wait_graph(snapshot).chains
    assert len(chains) == 1, chains
    return chains[0]


def test_a_main_that_waits_for_a_busy_worker_makes_progress() -> None:
    busy = thread(201, *FETCHING_WORKER, state="R", still_s=None)

    found = chain(world(waiting_main(), worker(0), worker(1, busy)))

    assert found.verdict == "progress"
    assert found.sentence == (
        "main waits for a batch on pipe 500 <- worker 1 runs, data.py:31 decode"
    )


def test_a_lost_batch_is_a_circle_from_system_calls_alone() -> None:
    found = chain(world(waiting_main(), worker(0), worker(1)))

    assert found.verdict == "cycle"
    assert found.sentence == (
        "main waits for a batch on pipe 500 <- worker 0 waits for work on pipe 600"
    )
    assert "for 84 s" in found.conclusion


def test_a_circle_seen_once_is_not_yet_a_verdict() -> None:
    now = world(waiting_main(), worker(0, thread(200, waits=reads(WORK), still_s=None)))

    assert chain(now).verdict == "unknown"


def test_a_circle_of_a_moment_is_a_hand_over() -> None:
    assert chain(world(waiting_main(still_s=0.5), worker(0))).verdict == "progress"


def test_the_hook_names_batch_and_owner() -> None:
    loader = Loader(
        pid(MAIN), 1, 2, next_task=417, owner_worker=1, outstanding=2, waiting_since_s=84.0
    )
    job = world(
        waiting_main(*WAITING_MAIN), worker(0), worker(1, stack=IDLE_WORKER), loaders=(loader,)
    )

    assert chain(job).sentence == "main waits for batch 417 <- worker 1 waits for work"


def test_a_loader_whose_owner_is_unknown_falls_back_to_all_workers() -> None:
    loader = Loader(pid(MAIN), 1, 2, owner_worker=None, waiting_since_s=84.0)
    other = Loader(pid(MAIN), 2, 2, owner_worker=9, waiting_since_s=84.0)
    job = world(waiting_main(*WAITING_MAIN), worker(0), loaders=(loader, other))

    assert chain(job).sentence.startswith("main waits for a batch <- worker 0")


def test_a_lock_locked_since_the_fork_is_a_dead_end() -> None:
    locked = thread(
        200,
        "data.py:__getitem__:12",
        *FETCHING_WORKER[2:],
        waits=WaitedOn("futex", "futex", ("futex 0x7f",), value=0),
    )

    found = chain(world(waiting_main(*WAITING_MAIN), worker(0, locked)))

    assert found.verdict == "dead-end"
    assert "It does not exist here" in found.conclusion
    assert found.links[-1].who == "worker 0"


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
def test_waits_that_are_not_the_jobs_fault(wait: WaitedOn, verdict: str) -> None:
    assert chain(world(waiting_main(), worker(0, thread(200, waits=wait)))).verdict == verdict


def test_a_lock_in_a_process_with_other_threads_is_not_hopeless() -> None:
    both = worker(0, thread(200, waits=WaitedOn("futex", "futex")), thread(201, *IDLE_FEEDER))

    assert chain(world(waiting_main(), both)).verdict == "unknown"


def test_a_worker_in_disk_wait_is_named_and_left_open() -> None:
    disk = WaitedOn("disk", "read", ("/mnt/nfs/a.tar", "rpc_wait"))

    found = chain(world(waiting_main(), worker(0, thread(200, waits=disk, state="D"))))

    assert found.verdict == "unknown"
    assert "/mnt/nfs/a.tar" in found.sentence


def test_a_disk_wait_without_details_is_told_as_one() -> None:
    found = chain(world(waiting_main(), worker(0, thread(200, state="D"))))

    assert "a disk or driver" in found.sentence


@pytest.mark.parametrize(("state", "by"), [("T", "a signal"), ("t", "a debugger or tracer")])
def test_a_stopped_worker_is_ordinary_and_says_how_to_go_on(state: str, by: str) -> None:
    found = chain(world(waiting_main(), worker(0, thread(200, state=state))))

    assert found.verdict == "ordinary"
    assert by in found.sentence
    assert "kill -CONT 200" in found.conclusion


def test_a_person_at_the_debugger_is_ordinary() -> None:
    held = main(threads=[thread(MAIN, "pdb.py:cmdloop", waits=WaitedOn("unknown", "read"))])

    graph = wait_graph(world(held))

    assert [edge.is_ordinary for edge in graph.edges] == [True]
    assert graph.chains == ()


def test_a_join_before_the_queue_is_drained_is_a_circle() -> None:
    joins = main(
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))],
    )
    stuck = process(
        300,
        "spawned",
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[
            thread(
                300,
                "threading.py:join",
                "multiprocessing/queues.py:_finalize_join",
                waits=WaitedOn("futex", "futex"),
            ),
            thread(
                301,
                name="QueueFeederThread",
                waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",), queued_bytes=65536),
            ),
        ],
    )

    found = chain(world(joins, stuck))

    assert found.verdict == "cycle"
    assert "by way of its thread QueueFeederThread" in found.sentence
    assert "a reader of pipe 500" in found.sentence


def test_a_write_into_a_pipe_that_only_the_writer_can_read_is_a_dead_end() -> None:
    survivor = process(
        200,
        parent=None,
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[
            thread(200, waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",))),
        ],
    )

    found = chain(world(survivor))

    assert found.verdict == "dead-end"
    assert "Nobody but itself" in found.conclusion


def test_output_piped_to_a_program_outside_the_job_is_not_a_dead_end() -> None:
    writes = main(
        fds=fds(9, links=[pipe(1, DATA, True)]),
        segments=(),
        threads=[thread(MAIN, waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",)))],
    )

    assert chain(world(writes)).verdict == "unknown"


def test_absence_means_nothing_where_descriptors_could_not_be_read() -> None:
    survivor = process(
        200,
        parent=None,
        fds=fds(9, links=[pipe(5, DATA, False), pipe(6, DATA, True)]),
        segments=(),
        threads=[thread(200, waits=WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",)))],
    )

    assert chain(world(survivor, process(201, segments=()))).verdict == "unknown"
    assert chain(world(survivor, process(201, fds=fds(3, links=())))).verdict == "unknown"


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
    two = locked(300, thread(301, *IDLE_FEEDER))

    assert chain(world(two, segments=(semaphore(300),))).verdict == "unknown"


def test_users_of_a_semaphore_are_known_from_their_own_mappings_as_well() -> None:
    from mpwatch.model.samples import SegmentUse

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


def test_idle_helpers_and_workers_make_edges_but_no_chains() -> None:
    tracker = process(
        900, "resource-tracker", threads=[thread(900, waits=WaitedOn("pipe-read", "read"))]
    )
    silent = process(901, "forkserver", threads=[thread(901)])
    running = main(
        fds=fds(3, links=[pipe(8, WORK, True)]), segments=(), threads=[thread(MAIN, state="R")]
    )

    graph = wait_graph(world(running, worker(0), tracker, silent))

    assert graph.chains == ()
    assert [(edge.what, edge.is_ordinary) for edge in graph.edges] == [
        ("work on pipe 600", True),
        ("orders", True),
    ]


def test_a_wait_for_a_helper_is_ordinary() -> None:
    joins = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 900",)))])

    assert chain(world(joins, process(900, "resource-tracker"))).verdict == "ordinary"


def test_native_threads_and_idle_threads_say_nothing() -> None:
    busy = main(
        threads=[
            thread(MAIN, state="R"),
            thread(101, name="pt_autograd_0", waits=WaitedOn("futex", "futex")),
            thread(102, name="quiet"),
        ]
    )

    assert wait_graph(world(busy)).edges == ()


def test_a_thread_that_reads_a_pipe_counts_where_its_stack_is_known() -> None:
    wait = WaitedOn("pipe-read", "read", (f"pipe:[{DATA}]",))
    reader = thread(101, "train.py:reader", waits=wait)
    nameless = thread(102, waits=wait)
    job = world(main(threads=[thread(MAIN, state="R"), reader, nameless]))

    assert [edge.tid for edge in wait_graph(job).edges] == [101]


def test_a_process_of_which_nothing_is_known_ends_a_chain_as_unknown() -> None:
    job = world(waiting_main(), worker(0, thread(200)))

    assert chain(job).verdict == "unknown"


def test_a_chain_that_is_the_end_of_another_is_told_once() -> None:
    joins = process(
        300,
        "spawned",
        threads=[thread(300, waits=WaitedOn("child", "wait4", ("pid 301",)))],
    )
    last = process(301, "spawned", threads=[thread(301, waits=WaitedOn("timer", "nanosleep"))])
    top = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))])

    assert len(chain(world(top, joins, last)).links) == 3


def test_sides_of_a_pipe_are_kept_apart_and_unknown_ones_count_as_both() -> None:
    socket = FdLink(4, "socket", "socket:[1]", 1, None)
    ends = pipe_ends(
        world(
            main(fds=fds(3, links=[pipe(3, DATA, True), socket])),
            process(200, fds=fds(3, links=[FdLink(3, "pipe", "pipe:[500]", DATA, None)])),
            process(201, state="Z"),
        )
    )

    assert ends.writers == {DATA: (pid(MAIN), pid(200))}
    assert ends.readers == {DATA: (pid(200),)}
    assert ends.is_complete


@pytest.mark.parametrize(
    ("target", "inode"), [("pipe:[7]", 7), ("pipe:[x]", None), ("socket:[7]", 7), ("", None)]
)
def test_only_pipes_have_a_pipes_inode(target: str, inode: int | None) -> None:
    assert inode_of(target) == inode
