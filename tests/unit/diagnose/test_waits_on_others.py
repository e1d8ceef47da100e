"""Waits for semaphores, children and the other ranks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.distributed.ranks import in_collective
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.ids import SegmentId, SegmentUse
from mpwatch.model.samples import FdLink, HeldLock, LockHolder, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    exited,
    fds,
    main,
    pid,
    pipe,
    process,
    segment,
    snapshot_of,
    socket,
    thread,
)
from tests.builders.waits import C10D, DATA, chain, reads

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
    job = snapshot_of(locked(300), locked(301), segments=(semaphore(300, 301),))

    found = chain(job)

    assert found.verdict == "cycle"
    assert "semaphore 9:77" in found.sentence


def test_a_semaphore_no_other_process_maps_is_a_dead_end() -> None:
    assert chain(snapshot_of(locked(300), segments=(semaphore(300),))).verdict == "dead-end"


def test_a_semaphore_that_another_thread_may_release_has_an_unknown_end() -> None:
    two = locked(300, thread(301, "data.py:refill"))

    assert chain(snapshot_of(two, segments=(semaphore(300),))).verdict == "unknown"


BARRIER = (
    "multiprocessing/synchronize.py:wait",
    "threading.py:_wait",
    "threading.py:wait",
    "train.py:replica:20",
)
POLLS = WaitedOn("timer", "clock_nanosleep", timeout_s=0.2)
AT_SEMAPHORE = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=SEMAPHORE, value=0)


def party(number: int, *stack: str, waits: WaitedOn = AT_SEMAPHORE, **more: Any) -> Process:
    """A process that maps the semaphore, as all that were forked after it was made."""
    at = thread(number, *stack, waits=waits)
    label = more.pop("label", f"replica {number}")
    return process(
        number, "spawned", label=label, fds=fds(3, links=()), segments=(), threads=[at], **more
    )


def test_a_process_at_a_barrier_waits_for_those_that_run_the_same_and_are_not_there() -> None:
    """A forked helper has inherited the barrier, and does not take part in it."""
    here = party(300, *BARRIER)
    helper = party(250, "train.py:beat:9", waits=POLLS, label="beat", parent=302)
    late = [party(number, "data.py:acquire:28", waits=POLLS) for number in (301, 302)]
    job = snapshot_of(
        main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))], segments=()),
        helper,
        here,
        *late,
        segments=(semaphore(MAIN, 250, 300, 301, 302),),
    )

    edge = next(e for e in wait_graph(Index(job)).edges if e.waiter == here.process)

    assert edge.what == "the other parties of a barrier (semaphore 9:77)"
    assert edge.providers == (pid(301), pid(302))


def test_the_holder_of_a_lock_is_further_down_in_the_function_that_takes_it() -> None:
    waits = party(300, "multiprocessing/synchronize.py:__enter__", "data.py:save:10")
    idle = party(301, "train.py:sleep:3", waits=POLLS)
    before = party(302, "data.py:save:9", waits=POLLS)
    holds = party(303, "data.py:write:40", "data.py:save:11", waits=POLLS)
    job = snapshot_of(
        waits, idle, before, holds, segments=(semaphore(300, 301, 302, 303),), root=pid(300)
    )

    assert chain_of(job, "replica 300") == (
        "replica 300 waits for semaphore 9:77 <- replica 303 sleeps, data.py:40 write"
    )


@pytest.mark.parametrize("still_s", [0.5, 60.0])
def test_a_process_that_does_nothing_is_not_said_to_set_an_event_while_others_work(
    still_s: float,
) -> None:
    """Both have inherited the event."""
    waits = party(300, "multiprocessing/synchronize.py:wait", "lock.py:acquire_write:23")
    blocked = party(301, "feed.py:run:63", waits=WaitedOn("futex", "futex"))
    works = party(302, "search.py:run:52", waits=WaitedOn("futex", "futex"))
    rests = replace(blocked, threads=(replace(blocked.threads[0], still_s=60.0),))
    worker = thread(900, "search.py:serve:30", waits=POLLS, still_s=still_s)
    at_work = replace(works, threads=(replace(works.threads[0], still_s=60.0), worker))
    job = snapshot_of(waits, rests, at_work, segments=(semaphore(300, 301, 302),), root=pid(300))

    edge = next(e for e in wait_graph(Index(job)).edges if e.waiter == waits.process)

    first = 302 if still_s < 1 else 301
    assert edge.providers[0] == pid(first)


def test_room_in_a_full_queue_is_made_by_who_takes_items_out_of_queues() -> None:
    """Both others have inherited the queue, and one of them waits for room in it as well."""
    put = "multiprocessing/queues.py:put"
    get = ("multiprocessing/connection.py:poll", "multiprocessing/queues.py:get")
    waits = party(300, put, "load.py:read:23")
    beside = party(301, "load.py:read:25", waits=POLLS)
    takes = party(302, *get, "load.py:batches:78", waits=WaitedOn("poll", "poll", timeout_s=5.0))
    job = snapshot_of(waits, beside, takes, segments=(semaphore(300, 301, 302),), root=pid(300))

    edge = next(e for e in wait_graph(Index(job)).edges if e.waiter == waits.process)

    assert edge.what.startswith("room in a full queue")
    assert edge.providers == (pid(302), pid(301))


def test_a_holder_that_computes_is_found_as_well() -> None:
    waits = party(300, "collate.py:acquire:4", "data.py:save:10")
    idle = party(301, "train.py:sleep:3", waits=POLLS)
    runs = process(
        302,
        "spawned",
        label="replica 302",
        segments=(),
        fds=fds(3, links=()),
        threads=[thread(302, "data.py:pack:40", "data.py:save:11", state="R")],
    )
    job = snapshot_of(waits, idle, runs, segments=(semaphore(300, 301, 302),), root=pid(300))

    assert chain_of(job, "replica 300").endswith("<- replica 302 runs, data.py:40 pack")


def test_the_hook_tells_which_process_holds_a_lock() -> None:
    """The parent that made the lock, and sleeps, does not hold it."""
    use = SegmentUse(SEMAPHORE, "/dev/shm/sem.x", "semaphore", False, None, (), ((4096, 8192),))
    waits, other = party(300), party(301, waits=POLLS)
    holds = party(302, "data.py:write:40", waits=POLLS)
    held = {"known": 3, "held": [99, 4128]}
    holds = replace(holds, sample=replace(holds.sample, segments=(use,)), gauges={"locks": held})
    own = main(threads=[thread(MAIN, waits=POLLS)], segments=(), fds=fds(3, links=()))
    job = snapshot_of(own, waits, other, holds, segments=(semaphore(MAIN, 300, 301, 302),))

    edge = next(e for e in wait_graph(Index(job)).edges if e.waiter == waits.process)

    assert edge.providers == (holds.process,)
    assert chain_of(job, "replica 300").endswith("<- replica 302 sleeps, data.py:40 write")


def test_a_parent_is_the_last_to_be_taken_for_the_holder_of_a_lock() -> None:
    own = main(threads=[thread(MAIN, waits=POLLS)], segments=(), fds=fds(3, links=()))
    users = (semaphore(MAIN, 300, 302),)
    job = snapshot_of(own, party(300), party(302, waits=POLLS), segments=users)

    assert chain_of(job, "replica 300").endswith("<- replica 302 sleeps")


def test_an_old_stack_does_not_show_what_a_process_waits_for() -> None:
    waits = party(300, *BARRIER)
    moved = replace(waits, threads=(replace(waits.threads[0], stack_age_s=9.0, waits_s=2.0),))
    job = snapshot_of(moved, party(301, waits=POLLS), segments=(semaphore(300, 301),))

    assert chain_of(job, "replica 300").startswith("replica 300 waits for semaphore 9:77 <- ")


def chain_of(job: Snapshot, name: str) -> str:
    """The sentence of the chain that begins with a process."""
    chains = wait_graph(Index(job)).chains
    return next(each.sentence for each in chains if each.links[0].name == name)


def test_users_of_a_semaphore_are_known_from_their_own_mappings_as_well() -> None:
    use = SegmentUse(SEMAPHORE, "/dev/shm/sem.x", "semaphore", False, None, (), ((1, 2),))
    busy = process(
        301,
        "spawned",
        fds=fds(3, links=()),
        segments=(use,),
        threads=[thread(301, state="R")],
    )

    assert chain(snapshot_of(locked(300), busy)).verdict == "progress"


def test_a_wait_for_a_child_ends_when_the_child_has_exited() -> None:
    """Main was read before its child was seen to be gone."""
    joins = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("pid 300",)))])

    assert chain(snapshot_of(joins, process(300, "spawned", state="Z"))).verdict == "progress"
    dead = process(300, "spawned", ended=exited(300, signal=9))
    found = chain(snapshot_of(joins, dead))
    assert (found.verdict, found.sentence) == ("progress", "main waits for the exit of 300")


def test_a_wait_for_data_from_a_zombie_is_a_dead_end() -> None:
    waits = main(
        threads=[thread(MAIN, waits=reads(DATA))], fds=fds(3, links=[pipe(5, DATA, False)])
    )
    links = [pipe(5, DATA, True)]

    zombie = process(300, "spawned", state="Z", fds=fds(3, links=links))

    assert chain(snapshot_of(waits, zombie)).verdict == "dead-end"


def test_a_wait_for_any_child_looks_at_all_of_them() -> None:
    joins = main(threads=[thread(MAIN, waits=WaitedOn("child", "wait4", ("any child",)))])
    busy = process(300, "spawned", threads=[thread(300, state="S", cpu_percent=50.0)])

    assert chain(snapshot_of(joins, busy)).verdict == "progress"


def rank(number: int, *stack: str, **more: Any) -> Process:
    wait = WaitedOn("futex", "futex")
    threads = [thread(300 + number, *stack, waits=wait), thread(900 + number)]
    return process(
        300 + number, "rank", label=f"rank {number}", rank=number, threads=threads, **more
    )


def test_ranks_in_a_collective_wait_for_the_one_that_is_not() -> None:
    late = process(302, "rank", label="rank 2", threads=[thread(302, "train.py:save:9", state="R")])
    job = snapshot_of(main(), rank(0, f"{C10D}:all_reduce"), rank(1, f"{C10D}:all_reduce"), late)

    chains = wait_graph(Index(job)).chains

    assert [found.verdict for found in chains] == ["progress", "progress"]
    assert all("the other ranks in all_reduce <- rank 2 runs" in c.sentence for c in chains)


def test_a_rank_that_sleeps_by_now_is_in_no_collective_although_its_last_stack_was() -> None:
    asleep = WaitedOn("timer", "clock_nanosleep", timeout_s=30.0)
    left = process(
        302,
        "rank",
        label="rank 2",
        rank=2,
        threads=[thread(302, f"{C10D}:all_reduce", waits=asleep)],
    )
    job = snapshot_of(main(), *(rank(n, f"{C10D}:all_reduce") for n in range(2)), left)

    chains = wait_graph(Index(job)).chains

    assert "cycle" not in {each.verdict for each in chains}
    assert in_collective(left) is None


def test_ranks_that_are_all_in_one_collective_form_a_cycle() -> None:
    job = snapshot_of(main(), rank(0, f"{C10D}:barrier"), rank(1, f"{C10D}:barrier"))

    assert chain(job).verdict == "cycle"


def test_ranks_that_wait_with_others_of_their_node_for_those_elsewhere_form_no_cycle() -> None:
    environment = {"WORLD_SIZE": "6"}
    ranks = [rank(n, f"{C10D}:barrier", environment=environment) for n in range(2)]

    chains = wait_graph(Index(snapshot_of(main(), *ranks))).chains

    assert {each.verdict for each in chains} == {"unknown"}
    assert chains[0].conclusion == (
        "Every rank of its group has to take part, and 4 of 6 ranks are on other machines."
    )


JOINS = f"{C10D}:init_process_group"
AGENT = "torch/distributed/elastic/agent/server/api.py"
AT_STORE = WaitedOn("socket-read", "read", ("socket:[77]",))
SLEEPS = WaitedOn("timer", "clock_nanosleep", timeout_s=0.01)


def joiner(number: int, *stack: str, waits: WaitedOn = AT_STORE, world: str = "2") -> Process:
    """A rank with a connection to the store, which is in the launcher."""
    to_store = socket(4, 77, 99, "tcp 127.0.0.1:5 > 127.0.0.1:29500")
    return process(
        300 + number,
        "rank",
        label=f"rank {number}",
        rank=number,
        parent=MAIN,
        fds=fds(5, links=[to_store]),
        environment={"MASTER_PORT": "29500", "WORLD_SIZE": world},
        threads=[thread(300 + number, *stack, waits=waits), thread(900 + number)],
    )


def launcher(*stack: str) -> Process:
    served = socket(9, 99, 77, "tcp 127.0.0.1:29500 > 127.0.0.1:5")
    return process(
        MAIN,
        "launcher",
        label="launcher",
        fds=fds(10, links=[served]),
        threads=[thread(MAIN, *stack, waits=SLEEPS, still_s=1.0)],
    )


def sentences(*processes: Process) -> dict[str, str]:
    """The first process of each chain, and the chain with its conclusion."""
    chains = wait_graph(Index(snapshot_of(*processes))).chains
    return {c.links[0].name: f"{c.sentence}. {c.verdict}: {c.conclusion}" for c in chains}


def test_a_rank_at_the_store_waits_for_the_missing_rank_not_for_the_launcher() -> None:
    late = joiner(1, "train.py:download:9", waits=SLEEPS)

    found = sentences(launcher(f"{AGENT}:_invoke_run"), joiner(0, JOINS, "train.py:main:3"), late)

    assert found == {
        "rank 0": (
            "rank 0 waits for the other ranks in init_process_group <- "
            "rank 1 sleeps, train.py:9 download. progress: It wakes up by itself."
        ),
        "launcher": (
            "launcher waits for the end of its ranks <- "
            "rank 1 sleeps, train.py:9 download. progress: It wakes up by itself."
        ),
    }


def test_the_rank_that_runs_the_store_polls_and_still_waits() -> None:
    found = sentences(joiner(0, JOINS, waits=SLEEPS, world="4"), joiner(1, JOINS, world="4"))

    assert "rank 0 waits for the other ranks in init_process_group" in found["rank 0"]
    assert "unknown: WORLD_SIZE is 4, and 2 of them are here" in found["rank 0"]
    assert "unknown: WORLD_SIZE is 4, and 2 of them are here" in found["rank 1"]


def test_a_process_with_a_rank_in_its_environment_is_a_rank() -> None:
    alone = joiner(0, JOINS, waits=SLEEPS)

    found = chain(snapshot_of(replace(alone, role="main", label="main")))

    assert "main waits for the other ranks in init_process_group" in found.sentence
    assert "WORLD_SIZE is 2, and 1 of them is here" in found.conclusion


def test_a_rank_that_has_joined_is_not_waited_for() -> None:
    """It may go on without the others, and waits for them later: that is no cycle."""
    found = sentences(joiner(0, JOINS), joiner(1, f"{C10D}:broadcast"))

    assert "init_process_group. unknown: " in found["rank 1"]
    assert "cycle" not in found["rank 1"]


def test_a_key_of_the_store_is_set_by_another_rank() -> None:
    working = joiner(1, "train.py:prepare:9", waits=SLEEPS)

    found = sentences(launcher(), joiner(0, "train.py:wait:4"), working)

    assert "rank 0 waits for a key in the ranks' store <- rank 1 sleeps" in found["rank 0"]


def test_a_cycle_of_ranks_is_a_cycle_for_a_launcher_that_polls_them() -> None:
    meets = joiner(0, f"{C10D}:broadcast", waits=WaitedOn("futex", "futex"))

    found = sentences(launcher(f"{AGENT}:_invoke_run"), meets, joiner(1, "train.py:wait:4"))

    assert ". cycle: Back to rank 0, for 60 s" in found["rank 0"]
    assert ". cycle: Back to rank 0, for 60 s" in found["launcher"]


def test_a_key_of_the_store_may_be_set_by_another_machine() -> None:
    other = joiner(1, "train.py:save:9", waits=SLEEPS, world="4")

    found = sentences(joiner(0, "train.py:wait:4", world="4"), other)

    assert "store, train.py:4 wait. unknown: Another rank has to set it" in found["rank 0"]


def test_a_launcher_waits_for_the_other_machines_to_join() -> None:
    found = chain(snapshot_of(launcher(f"{AGENT}:_rendezvous", f"{AGENT}:_invoke_run")))

    assert found.verdict == "unknown"
    assert "launcher waits for the other machines of its job" in found.sentence
    assert "--nnodes" in found.conclusion


def test_a_poll_for_a_lock_file_is_no_sleep_that_ends_by_itself() -> None:
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.03)
    stack = (
        "site-packages/filelock/_api.py:_poll_until_acquired",
        "site-packages/filelock/_api.py:acquire",
        "train.py:download:13",
    )
    rank = process(300, "rank", fds=fds(3, links=()), threads=[thread(300, *stack, waits=sleeps)])

    found = chain(snapshot_of(rank))

    assert found.verdict == "unknown"
    assert "waits for a lock file, train.py:13 download" in found.sentence
    assert "has to be removed" in found.conclusion


LOCK = "/data/set.lock"
TRIES = WaitedOn("timer", "clock_nanosleep", timeout_s=0.25)


def opens(number: int, waits: WaitedOn, *stack: str, lock: Any = None, path: str = LOCK) -> Process:
    """A process that has a file open, and a lock on it or none."""
    link = FdLink(3, "file", path, None, True)
    at = thread(number, *stack, waits=waits)
    return process(
        number,
        "spawned",
        label=f"packer {number}",
        fds=replace(fds(4, links=[link]), locks=() if lock is None else (lock,)),
        segments=(),
        threads=[at],
    )


def flocked_by(number: int) -> HeldLock:
    return HeldLock(LOCK, "flock", True, number)


def test_a_process_that_tries_repeatedly_for_a_lock_waits_for_its_holder() -> None:
    tries = opens(300, TRIES, "data.py:acquire:28")
    holder = opens(301, POLLS, "train.py:beat:9", lock=flocked_by(300))
    other = opens(302, POLLS, "train.py:rest:9", path="/data/other")

    found = chain_of(snapshot_of(main(state="R"), tries, holder, other), "packer 300")

    assert (
        found
        == "packer 300 waits for the lock on /data/set.lock <- packer 301 sleeps, train.py:9 beat"
    )


def test_a_sleep_beside_a_locked_file_is_no_attempt_to_lock_it() -> None:
    sleeps = opens(300, TRIES, "data.py:block_until_clock:28")
    holder = opens(301, POLLS, "train.py:beat:9", lock=flocked_by(301))

    edges = wait_graph(Index(snapshot_of(main(state="R"), sleeps, holder))).edges

    assert not any("the lock on" in edge.what for edge in edges)


def test_a_connection_that_waits_for_a_database_is_known_by_its_short_sleeps() -> None:
    """SQLite has no frames of Python; it has locks on the file beside the database."""
    path = "/data/jobs.db-shm"
    tries = opens(
        300,
        WaitedOn("timer", "clock_nanosleep", timeout_s=0.1),
        "train.py:claim:5",
        path=path,
        lock=HeldLock(path, "fcntl", False, 300),
    )
    holder = opens(
        301, POLLS, "train.py:report:7", lock=HeldLock(path, "fcntl", True, 301), path=path
    )

    job = snapshot_of(main(state="R"), tries, holder)

    found = chain_of(
        replace(job, source=(claims("row = db.execute(SQL).fetchone()"),)), "packer 300"
    )
    asleep = chain_of(replace(job, source=(claims("time.sleep(0.036)"),)), "packer 300")
    unread = chain_of(job, "packer 300")

    assert found.startswith("packer 300 waits for the lock on /data/jobs.db <- packer 301 sleeps")
    assert asleep == unread == "packer 300 sleeps, train.py:5 claim"


def claims(text: str) -> SourceLine:
    return SourceLine("/home/me/train.py", 5, "claim", Statement(5, text))


def test_a_blocked_process_waits_for_the_process_that_inherited_the_lock() -> None:
    """The kernel names the process that took the lock, which has closed its copy since."""
    blocked = WaitedOn("unknown", "flock", (LOCK,), (3,), holder=LockHolder(301, "python"))
    taker = process(301, "spawned", label="packer 301", fds=fds(3, links=()), segments=())
    heir = opens(302, POLLS, "train.py:beat:9", lock=flocked_by(301))

    found = chain_of(snapshot_of(main(state="R"), opens(300, blocked), taker, heir), "packer 300")

    assert "the lock on /data/set.lock <- packer 302 sleeps" in found


def test_a_lock_whose_holder_the_kernel_does_not_show_is_left_open() -> None:
    blocked = WaitedOn("unknown", "flock", (LOCK,), (3,))

    found = chain(snapshot_of(opens(300, blocked)))

    assert found.sentence == "packer 300 waits for the lock on /data/set.lock"
    assert (found.verdict, "shows no holder" in found.conclusion) == ("unknown", True)


def test_a_process_that_opens_a_locked_file_again_waits_for_itself() -> None:
    blocked = WaitedOn("unknown", "flock", (LOCK,), (4,), holder=LockHolder(300, "python"))

    found = chain(snapshot_of(opens(300, blocked, lock=flocked_by(300))))

    assert found.verdict == "dead-end"
    assert "opened the file twice" in found.conclusion


def test_the_file_that_the_package_filelock_tries_for_is_likely_the_only_locked_one() -> None:
    stack = ("site-packages/filelock/_api.py:acquire", "train.py:download:13")
    holder = opens(301, POLLS, "train.py:beat:9", lock=flocked_by(301))

    found = chain_of(
        snapshot_of(main(state="R"), party(300, *stack, waits=TRIES), holder), "replica 300"
    )

    assert "waits for a lock file, likely /data/set.lock <- packer 301 sleeps" in found


def spawned_rank(number: int, *stack: str, waits: WaitedOn) -> Process:
    """A rank of mp.spawn: only what it calls says that it is one."""
    threads = [thread(number, *stack, waits=waits)]
    return process(number, "spawned", fds=fds(3, links=()), segments=(), threads=threads)


def test_ranks_of_mp_spawn_wait_for_their_sibling_that_is_not_in_the_collective() -> None:
    inside = WaitedOn("futex", "futex")
    here = [spawned_rank(number, f"{C10D}:barrier", waits=inside) for number in (301, 302)]
    late = spawned_rank(300, "train.py:report:14", waits=POLLS)

    found = wait_graph(Index(snapshot_of(main(), late, *here))).chains

    assert {each.verdict for each in found} == {"progress"}
    assert {each.links[-1].process for each in found} == {pid(300)}


@pytest.mark.parametrize(
    ("state", "waits_for"),
    [
        ("R", "for the other ranks in the backward pass <- rank 1 runs, train.py:49 step"),
        ("S", "in the backward pass, train.py:49 step"),
    ],
    ids=["another rank works", "all wait"],
)
def test_a_rank_that_waits_in_the_backward_pass_waits_for_the_rank_that_works(
    state: str, waits_for: str
) -> None:
    """DistributedDataParallel reduces gradients there in native code, without a call to show."""
    stack = ("torch/autograd/graph.py:_engine_run_backward", "train.py:step:49")
    locked = WaitedOn("futex", "futex")

    def rank(number: int, main: Thread) -> Process:
        threads = [main, thread(number + 50, name="gloo_tcp_loop")]
        return process(number, "rank", label=f"rank {number - 300}", threads=threads, segments=())

    waits = rank(300, thread(300, *stack, waits=locked))
    works = rank(301, thread(301, *stack, state=state, waits=None if state == "R" else locked))

    found = chain_of(snapshot_of(main(state="R"), waits, works), "rank 0")
    assert found == f"rank 0 waits {waits_for}"
