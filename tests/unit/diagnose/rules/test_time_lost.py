"""Time that a job loses in pickling, in small tensors, at a disk, and to page faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput import (
    disk_waits,
    many_small_tensors,
    page_fault_cost,
    pickling_cost,
)
from mpwatch.model.account import NO_CORE, PICKLING, UNPICKLING, Activity
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Flow, Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from mpwatch.model.waits import WaitEdge, WaitGraph
from tests.builders.accounts import COMPUTES, WAITS_IN_QUEUE, answers_from, with_shares
from tests.builders.snapshots import (
    IDLE_FEEDER,
    MAIN,
    MIB,
    NOW_S,
    accounted,
    found,
    history,
    line,
    main,
    memory,
    only,
    pid,
    process,
    segment,
    snapshot_of,
    thread,
    ticked,
)

SECONDS = 40
FEEDER = 201
DUMPS = ("multiprocessing/reduction.py:dumps", "multiprocessing/queues.py:_feed")
UNPICKLES = ("multiprocessing/queues.py:get", "train.py:infer:32")
WORKS = ("train.py:infer:33",)
DECODES = ("data.py:decode:31",)
TASKS = (
    "multiprocessing/reduction.py:dumps",
    "multiprocessing/connection.py:send",
    "multiprocessing/pool.py:_handle_tasks",
)
RUNS: dict[str, Any] = {"state": "R", "stack_age_s": 0.1, "has_gil": True, "cpu_percent": 90.0}
ITEM = WaitedOn("pipe-read", "read", ("pipe:[77]",), (4,))
OWN = WaitedOn("futex", "futex", ("futex 0x7f",), address=0x7F, futex_command=9)
ROOM = WaitedOn("semaphore", "futex", ("sem 1b:9",), value=0)


def job(second: int, *processes: Process, **more: Any) -> Snapshot:
    return snapshot_of(*processes, at_s=NOW_S - SECONDS + second, usable_cpus=2, **more)


def watched(make: Callable[[int], Snapshot]) -> Snapshot:
    """The job after `SECONDS`, made by a function of the second."""
    return accounted(*(make(second) for second in range(SECONDS + 1)))


def waits(number: int = MAIN, *stack: str) -> Thread:
    return thread(number, *(stack or ("train.py:collect:12",)), waits=ITEM, stack_age_s=0.0)


# --- pickling ------------------------------------------------------------------------------------


def feeding(second: int, *, feeds: int = 80, of_main: tuple[str, ...] = ()) -> Snapshot:
    """A process whose feeder thread pickles for so many ticks a second, and main that waits."""
    feeder = thread(FEEDER, *IDLE_FEEDER, name="QueueFeederThread", waits=OWN, stack_age_s=0.0)
    if second % 10 < feeds // 10:
        feeder = thread(FEEDER, *DUMPS, name="QueueFeederThread", **RUNS)
    fills = thread(200, "multiprocessing/queues.py:put", "train.py:acquire:26", waits=ROOM)
    source = process(200, "spawned", threads=[fills, feeder])
    own = main(threads=[thread(MAIN, *of_main, **RUNS) if of_main else waits()])
    return job(
        second,
        ticked(own, {MAIN: 90 * second if of_main else 0}),
        ticked(source, {FEEDER: feeds * second}),
    )


def test_a_feeder_thread_that_pickles_most_of_the_time_is_named_with_the_line_that_puts() -> None:
    past = history({(200, "written_bytes"): line(1e9, per_s=20e6)})

    finding = only(pickling_cost.check, watched(feeding), past)

    assert finding.process == pid(200)
    assert finding.summary == (
        "spawned 200 (200) spends 80% of the time in its thread QueueFeederThread pickling what it "
        "sends at train.py:26 acquire"
    )
    assert finding.evidence[0] == (
        "spawned 200 (200), thread QueueFeederThread: 80% pickling; its main thread is at "
        "train.py:26 acquire"
    )
    assert finding.evidence[1] == "spawned 200 (200) writes 19.1M/s in files, pipes and sockets"
    assert finding.evidence[-1] == "without it the job would be at most 50 times as fast"
    assert "many small Python objects" in finding.cause
    assert "one array, tensor or bytes object" in finding.advice
    assert "shared memory" not in finding.advice


@pytest.mark.parametrize(("pickles", "is_named"), [(8, True), (2, False)])
def test_what_a_thread_does_besides_counts_where_the_hook_takes_its_stacks(
    pickles: int, is_named: bool
) -> None:
    """Of a thread with less than half of a core only stacks in a pickler show that it ran."""
    sends = ("multiprocessing/reduction.py:dumps", "multiprocessing/connection.py:send")
    runs = {**RUNS, "has_gil": None, "cpu_percent": 40.0}

    def make(second: int) -> Snapshot:
        inside = sends if second % 10 < pickles else ()
        sender = thread(MAIN, *inside, "train.py:share:18", **runs)
        return job(second, ticked(main(threads=[sender]), {MAIN: 40 * second}))

    assert bool(found(pickling_cost.check, watched(make))) is is_named


def test_large_blocks_of_data_are_distinguished_from_many_small_objects() -> None:
    past = history({(200, "written_bytes"): line(1e9, per_s=900e6)})

    finding = only(pickling_cost.check, watched(feeding), past)

    assert "large blocks of data" in finding.cause
    assert "shared memory" in finding.advice
    assert "lists" not in finding.advice


LARGE = WaitedOn("pipe-write", "write", ("pipe:[9]",), (3,), wanted_bytes=32 * MIB)


def test_small_objects_are_not_claimed_while_a_large_message_is_under_way() -> None:
    def make(second: int) -> Snapshot:
        fills = thread(300, "train.py:publish:14", waits=LARGE, stack_age_s=0.0)
        made = feeding(second)
        return job(second, *made.processes, process(300, "spawned", threads=[fills]))

    # A message counts as written once all of it is.
    past = history({(200, "written_bytes"): line(1e9, per_s=20.0)})

    finding = only(pickling_cost.check, watched(make), past)

    assert "a message of at least 32.0M is being sent at this moment" in finding.evidence
    assert "small" not in finding.cause
    assert "in shared memory" in finding.advice
    assert "lists" not in finding.advice


RECV = ("multiprocessing/connection.py:_recv", "multiprocessing/connection.py:recv_bytes")


@pytest.mark.parametrize("is_at_it", [True, False])
def test_a_process_that_reads_messages_is_said_to_receive(is_at_it: bool) -> None:
    def make(second: int) -> Snapshot:
        stack = (*RECV, "data.py:poll:26") if second < SECONDS or is_at_it else WORKS
        own = process(200, "spawned", threads=[thread(200, *stack, is_active=True, **RUNS)])
        return job(second, main(threads=[waits()]), ticked(own, {200: 90 * second}))

    written, read = line(1e6, per_s=14.0), line(1e9, per_s=300e6)
    past = history({(200, "written_bytes"): written, (200, "read_bytes"): read})

    finding = only(pickling_cost.check, watched(make), past)

    assert "copying what it receives at data.py:26 poll" in finding.summary
    assert "spawned 200 (200) reads 286M/s in files, pipes and sockets" in finding.evidence
    assert "large blocks of data" in finding.cause


def test_neither_is_claimed_where_no_bytes_were_counted() -> None:
    finding = only(pickling_cost.check, watched(feeding))

    assert "Here that is" not in finding.cause


OF_A_HOOK = {**RUNS, "has_gil": None}


@pytest.mark.parametrize(
    ("runs", "per_s"),
    [(RUNS, 90), ({**OF_A_HOOK, "cpu_percent": 45.0}, 45)],
    ids=["py-spy", "a hook cannot tell whether a thread runs"],
)
def test_tasks_of_a_pool_that_carry_much_are_named_as_such(
    runs: dict[str, Any], per_s: int
) -> None:
    def make(second: int) -> Snapshot:
        # Half of the readings find it waiting for the GIL or for room, in a stack of its own.
        does = runs if second % 2 or per_s > 50 else {**runs, "state": "S"}
        sends = thread(101, *TASKS, name="Thread-2 (_handle_tasks)", **does)
        results = waits(MAIN, "threading.py:wait", "pool.py:wait", "train.py:fit:21")
        wait = WaitedOn("pipe-read", "read", ("pipe:[9]",), (3,), wanted_bytes=22 * MIB)
        own = ticked(main(threads=[results, sends]), {101: per_s * second})
        return job(second, own, process(200, "pool-worker", threads=[thread(200, waits=wait)]))

    finding = only(pickling_cost.check, watched(make))

    assert "in its thread Thread-2 (_handle_tasks) pickling what it sends at train.py:21 fit" in (
        finding.summary
    )
    assert "a message of at least 22.0M is being sent at this moment" in finding.evidence
    assert "bound method" in finding.advice
    assert "initializer=" in finding.advice


SINGLE = Mark(
    "one-by-one",
    "/home/me/train.py",
    "fit",
    "imap_unordered",
    Statement(21, "for tile in pool.imap_unordered(render, tiles):"),
)


@pytest.mark.parametrize(
    ("marks", "own", "bytes_per_s", "is_named"),
    [
        pytest.param((SINGLE,), 0.1, 1e6, True, id="tiny tasks"),
        pytest.param((SINGLE,), 0.6, 1e6, False, id="tasks that take long"),
        pytest.param((SINGLE,), 0.1, 20e6, False, id="large tasks"),
        pytest.param((), 0.1, 1e6, False, id="a chunksize is given"),
    ],
)
def test_tiny_tasks_that_are_handed_over_one_by_one_are_named(
    marks: tuple[Mark, ...], own: float, bytes_per_s: float, is_named: bool
) -> None:
    def make(second: int) -> Snapshot:
        sends = thread(101, *TASKS, name="Thread-2 (_handle_tasks)", **RUNS)
        results = waits(MAIN, "threading.py:wait", "pool.py:wait", "train.py:fit:21")
        owner = ticked(main(threads=[results, sends]), {101: 90 * second})
        worker = process(200, "pool-worker", threads=[thread(200)])
        return job(second, owner, worker, marks=marks)

    seen = watched(make)
    of_worker = with_shares(seen, p200={COMPUTES: own, WAITS_IN_QUEUE: 1 - own}).account
    both = {**seen.account.processes, **of_worker.processes}
    seen = replace(seen, account=replace(seen.account, processes=both))
    past = history({(MAIN, "written_bytes"): line(1e9, per_s=bytes_per_s)})

    finding = only(pickling_cost.check, seen, past)

    says = (
        "Each item of `for tile in pool.imap_unordered(render, tiles):` at train.py:21 fit is a "
        "task of its own, as the chunksize of imap_unordered is 1"
    )
    assert finding.cause.startswith(says) is is_named
    assert finding.advice.startswith("Pass a chunksize to imap_unordered") is is_named
    assert ("without it the job" in finding.evidence[-1]) is not is_named


@pytest.mark.parametrize(("own", "is_told"), [(0.1, True), (0.6, False)])
def test_tiny_tasks_are_reported_also_where_no_thread_pickles_most_of_the_time(
    own: float, is_told: bool
) -> None:
    does = {COMPUTES: own, WAITS_IN_QUEUE: 0.5, NO_CORE: 0.1}
    owner = main(threads=[thread(MAIN, "train.py:fit:21")])
    seen = snapshot_of(owner, process(200, "pool-worker"), marks=(SINGLE,))
    past = history({(200, "voluntary_switches"): line(1e6, per_s=900)})

    findings = found(pickling_cost.check, with_shares(seen, p200=does), past)

    assert bool(findings) is is_told
    if is_told:
        assert findings[0].summary.startswith(
            "main (100) hands tasks of one item each to its workers, which are in the code of the "
            "program for 12% of their time at most: `for tile in pool.imap_unordered("
        )


def test_a_receiver_that_unpickles_is_named_with_its_line() -> None:
    def make(second: int) -> Snapshot:
        # Of four readings one finds it at its own work.
        stack = WORKS if second % 4 == 0 else UNPICKLES
        own = main(threads=[thread(MAIN, *stack, **RUNS)])
        return job(second, ticked(own, {MAIN: 90 * second}))

    finding = only(pickling_cost.check, watched(make))

    assert "unpickling what it receives at train.py:32 infer" in finding.summary
    assert finding.severity is Severity.WARNING
    assert "at most" in finding.evidence[-1]


@pytest.mark.parametrize(
    "more",
    [{"feeds": 20}, {"of_main": WORKS}],
    ids=["it pickles little", "main computes all the time in any case"],
)
def test_pickling_that_does_not_hold_up_the_job_is_not_reported(more: dict[str, Any]) -> None:
    assert found(pickling_cost.check, watched(lambda second: feeding(second, **more))) == []


SENDS_EACH = Mark(
    "sends-each",
    "/home/me/group.py",
    "call",
    "several, (name, (arg,))",
    Statement(43, "connection.send((name, (arg,)))"),
)
PICKLES = Activity("computing", PICKLING, place="group.py:43 call")
LOADS = Activity("computing", UNPICKLING, place="group.py:20 serve")
OF_SEVERAL = Activity("waiting", "data on socket 77", "socket", place="group.py:20 serve")


def controlled(
    marks: tuple[Mark, ...] = (SENDS_EACH,), *, pickles: float = 0.25, is_of_many: bool = True
) -> Snapshot:
    """Main that sends to two workers by turns, which other workers have inherited the ends of."""
    text = SourceLine("/home/me/group.py", 43, "call", SENDS_EACH.statement)
    workers = [process(number, "spawned") for number in (200, 201)]
    seen = snapshot_of(main(), *workers, source=(text,), marks=marks, usable_cpus=2)
    waiting = OF_SEVERAL._replace(is_of_many=is_of_many)
    does = {LOADS: pickles, COMPUTES: 0.05, waiting: 0.95 - pickles}
    own = {PICKLES: pickles, COMPUTES: 0.1, answers_from(200): 0.9 - pickles}
    return with_shares(seen, p100=own, p200=does, p201=does)


def test_a_loop_that_pickles_for_each_receiver_is_named_with_its_line_and_object() -> None:
    finding = only(pickling_cost.check, controlled())

    assert finding.process == pid(MAIN)
    assert finding.summary == (
        "main (100) spends 25% of the time pickling what it sends at group.py:43 call, anew for "
        "each of its receivers"
    )
    assert "79% of all computing of the job whose kind is known passes objects on" in (
        finding.evidence
    )
    assert finding.cause.startswith(
        "`connection.send((name, (arg,)))` at group.py:43 call is in a loop over connections: each "
        "send() pickles its object anew, one after the other, and spawned 200 (200) and spawned "
        "201 (201) unpickle what they get; where several of them get the same object"
    )
    assert finding.advice.startswith("Where several receivers get the same object, pickle it once")
    same = SENDS_EACH._replace(about="same, batch")
    assert (
        "batch is the same for all of them" in only(pickling_cost.check, controlled((same,))).cause
    )


def test_processes_that_pass_objects_on_by_turns_are_told_without_such_a_loop_too() -> None:
    finding = only(pickling_cost.check, controlled(()))

    assert "anew for each" not in finding.summary
    assert "ForkingPickler" not in finding.advice


@pytest.mark.parametrize("more", [{"pickles": 0.1}, {"is_of_many": False}])
def test_little_pickling_or_waits_for_something_outside_are_not_told(more: dict[str, Any]) -> None:
    assert found(pickling_cost.check, controlled(**more)) == []


def test_a_process_that_waits_for_an_item_does_not_unpickle() -> None:
    gets = ("multiprocessing/connection.py:poll", *UNPICKLES)

    def make(second: int) -> Snapshot:
        runs = second % 4 == 0
        own = thread(MAIN, *gets, **RUNS) if runs else waits(MAIN, *gets)
        return job(second, ticked(main(threads=[own]), {MAIN: 25 * second}))

    assert found(pickling_cost.check, watched(make)) == []


# --- many small tensors --------------------------------------------------------------------------

OPENS = (
    "multiprocessing/connection.py:_recv",
    "multiprocessing/resource_sharer.py:detach",
    "torch/multiprocessing/reductions.py:rebuild_storage_fd",
    "multiprocessing/queues.py:get",
    "torch/utils/data/dataloader.py:_try_get_data",
    "train.py:main:39",
)


def opening(second: int, **more: Any) -> Snapshot:
    """Main that opens shared tensors for two thirds of its time."""
    own = thread(MAIN, *(OPENS if second % 3 else WORKS), **RUNS)
    return job(second, ticked(main(threads=[own]), {MAIN: 90 * second}), process(200), **more)


SMALL = tuple(segment(n, 200) for n in range(100))


def test_small_tensors_that_are_opened_one_by_one_are_named() -> None:
    finding = only(many_small_tensors.check, watched(lambda n: opening(n, segments=SMALL)))

    assert finding.process == pid(MAIN)
    assert "of the time on opening shared tensors at train.py:39 main" in finding.summary
    assert (
        "100 shared tensors exist at this moment, half of them of at most 4.0K" in finding.evidence
    )
    assert "collate_fn" in finding.advice


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (None, "(under the strategy file_descriptor"),
        ("file_descriptor", "a file of its own, and a connection to the sender that fetches its"),
        ("file_system", "a shared-memory file of its own. For a small"),
    ],
)
def test_the_cost_of_a_small_tensor_is_that_of_the_strategy_in_use(
    strategy: str | None, words: str
) -> None:
    seen = watched(lambda n: opening(n, segments=SMALL))
    processes = tuple(replace(each, sharing_strategy=strategy) for each in seen.processes)

    finding = only(many_small_tensors.check, replace(seen, processes=processes))

    assert words.replace("a file of", "shared-memory file of") in finding.cause


def test_the_hook_knows_how_small_they_are_when_none_exists_at_the_moment() -> None:
    flow = Flow(pid(200), pid(MAIN), 9000, 900_000, 0, tensors_per_s=600.0, bytes_per_s=60_000.0)

    finding = only(many_small_tensors.check, watched(lambda n: opening(n, flows=(flow,))))

    assert any("sends 600 tensors each second to main (100)" in each for each in finding.evidence)


def test_few_tensors_take_the_time_of_their_sender() -> None:
    few = Flow(pid(200), pid(MAIN), 90, 9_000, 0, tensors_per_s=5.0, bytes_per_s=80_000.0)

    assert found(many_small_tensors.check, watched(lambda n: opening(n, flows=(few,)))) == []


def test_waits_for_descriptors_of_tensors_are_part_of_opening_them() -> None:
    def make(second: int) -> Snapshot:
        asks = WaitedOn("socket-read", "read", (f"socket:[{second}]",), (9,))
        own = thread(MAIN, *OPENS, waits=asks, stack_age_s=1.0, still_s=0.0)
        if second % 3 == 0:
            own = thread(MAIN, *OPENS, **RUNS)
        return job(second, ticked(main(threads=[own]), {MAIN: 30 * second}), segments=SMALL)

    finding = only(many_small_tensors.check, watched(make))

    assert "opening shared tensors at train.py:39 main" in finding.summary
    assert "waiting for descriptors of shared tensors" in finding.evidence[0]


def test_large_tensors_are_not_small_ones() -> None:
    large = tuple(segment(n, 200, size_bytes=8 * MIB) for n in range(100))

    assert found(many_small_tensors.check, watched(lambda n: opening(n, segments=large))) == []
    assert found(pickling_cost.check, watched(opening)) == []


# --- disks ---------------------------------------------------------------------------------------

STORE = "/runs/probe0.log"


def syncing(
    second: int,
    *,
    synced: int = 6,
    call: str = "fsync",
    callers: tuple[str, ...] = (),
    **more: Any,
) -> Snapshot:
    """A process that so many of ten readings find at its disk; its stack is of another wait."""
    wait = WaitedOn("disk", call, (STORE, "folio_wait_bit_common"), (3,))
    stack: dict[str, Any] = {"stack_age_s": 1.0, "is_active": False}
    calls = ("train.py:write:12", *callers)
    at_disk = thread(200, *calls, state="D", waits=wait, **stack)
    computes = thread(200, *calls, state="R", cpu_percent=20.0, **stack)
    own = process(200, "spawned", threads=[at_disk if second % 10 < synced else computes], **more)
    joins = WaitedOn("child", "wait4", ("pid 200",))
    of_main = main(threads=[thread(MAIN, "popen_fork.py:wait", waits=joins)])
    return job(second, of_main, ticked(own, {200: (10 - synced) * 10 * second}))


def test_a_process_that_waits_for_fsync_most_of_the_time_is_named_with_its_line() -> None:
    finding = only(disk_waits.check, watched(syncing))

    assert finding.process == pid(200)
    assert finding.summary == (
        "spawned 200 (200) waits 60% of the time in fsync until its data is on the disk at "
        "train.py:12 write"
    )
    assert f"60% waiting for fsync of {STORE}" in finding.evidence[0]
    assert finding.evidence[-1] == "without these waits the job would be at most 2.5 times as fast"
    assert "Call it once for many records" in finding.advice


def with_line_12(text: str, *within: str, stack: tuple[str, ...] = ()) -> Snapshot:
    """The job of `syncing`, whose statement at its line is this one."""
    around = tuple(Statement(10, each) for each in within)
    at_line = SourceLine("/home/me/train.py", 12, "write", Statement(12, text), around)
    outer = SourceLine(
        "/home/me/train.py", 30, "fill", Statement(30, "write(row)"), (Statement(29, ROWS),)
    )
    return replace(watched(lambda n: syncing(n, callers=stack)), source=(at_line, outer))


ROWS = "for row in rows:"


def test_a_commit_in_each_round_of_a_loop_is_told_as_the_reason_for_its_sync() -> None:
    finding = only(disk_waits.check, with_line_12("self.db.commit()", ROWS))

    assert finding.summary.endswith("train.py:12 write, a commit in each round of a loop")
    assert finding.cause.startswith(
        "train.py:12 write is reached in each round of `for row in rows:` (train.py:10 write), and "
        "each time a transaction is committed. A commit returns when"
    )
    assert "Make one transaction of many rounds" in finding.advice

    called = with_line_12("self.db.execute(INSERT, row)", stack=("train.py:fill:30",))
    cause = only(disk_waits.check, called).cause
    assert "each round of `for row in rows:` (train.py:29 fill)" in cause
    assert "execute() commits by itself where no transaction is open" in cause


@pytest.mark.parametrize(("file", "is_told"), [("/runs/t.db-journal", True), (STORE, False)])
def test_syncs_too_short_for_a_stack_are_those_of_commits_of_sqlite(
    file: str, is_told: bool
) -> None:
    taken = with_line_12("self.db.commit()", ROWS)
    short = Activity("waiting", f"fdatasync of {file}", "file")
    taken = with_shares(taken, p100={short: 0.0}, p200={short: 0.6, COMPUTES: 0.4})

    assert ("transaction is committed" in only(disk_waits.check, taken).cause) is is_told


def test_rows_of_an_open_transaction_are_not_committed_one_by_one() -> None:
    """The thread computes in execute() between two commits, which are elsewhere."""
    taken = with_line_12("self.db.execute(INSERT, row)", ROWS)
    short = Activity("waiting", "fdatasync of /runs/t.db-journal", "file")
    taken = with_shares(taken, p100={short: 0.0}, p200={short: 0.6, COMPUTES: 0.4})

    assert "commit" not in only(disk_waits.check, taken).cause


@pytest.mark.parametrize(
    "other",
    [
        with_line_12("self.db.commit()", ROWS, "if number % 1000 == 0:"),
        with_line_12("self.db.commit()"),
        with_line_12("os.fsync(file.fileno())", ROWS),
        with_line_12("self.db.executemany(INSERT, rows)", ROWS),
    ],
    ids=["for many rows", "no loop", "no commit", "all rows at once"],
)
def test_another_sync_is_not_told_as_a_commit_of_each_round(other: Snapshot) -> None:
    finding = only(disk_waits.check, other)

    assert "commit" not in finding.summary + finding.cause + finding.advice


def test_waits_for_reads_are_not_called_fsync() -> None:
    finding = only(disk_waits.check, watched(lambda n: syncing(n, call="read")))

    assert f"waits 60% of the time for {STORE} (a disk or file server)" in finding.summary
    assert "fsync" not in finding.cause + finding.advice


def test_an_occasional_fsync_is_not_reported() -> None:
    assert found(disk_waits.check, watched(lambda n: syncing(n, synced=2))) == []


@pytest.mark.parametrize(
    ("channel", "is_reported"),
    [("jbd2_log_wait_commit", True), ("__vm_munmap", False), ("nv_wait_event", False)],
)
def test_waits_for_drivers_and_for_the_own_mappings_are_no_waits_for_a_disk(
    channel: str, is_reported: bool
) -> None:
    def make(second: int) -> Snapshot:
        snapshot = syncing(second)
        own = snapshot.processes[1]
        if own.threads[0].state != "D":
            return snapshot
        wait = WaitedOn("disk", "openat", (channel,))
        blocked = replace(own.threads[0], waits_on=wait, wchan=channel)
        own = replace(own, threads=(blocked,))
        return replace(snapshot, processes=(snapshot.processes[0], own))

    assert bool(found(disk_waits.check, watched(make))) == is_reported


IMPORTING = "<frozen importlib._bootstrap>:_find_and_load"


@pytest.mark.parametrize(
    ("path", "stack", "imports", "is_told"),
    [
        ("/data/shard-3.bin", "train.py:write:12", 0, True),
        ("/lib/torch/functional.pyc", "", 0, False),
        ("/lib/libcublas.so.12", "", 0, False),
        ("/data/modules.py", "train.py:write:12", 0, True),
        ("/lib/torch/version.txt", IMPORTING, 0, False),
        ("", IMPORTING, 0, False),
        ("", "", 0, True),
        ("", "", 4, True),
        ("", "", 5, False),
    ],
)
def test_what_a_program_reads_while_it_imports_is_its_start(
    path: str, stack: str, imports: int, *, is_told: bool
) -> None:
    """By the file, by the stack, or by what else the process was found at; a page fault as well."""

    def make(second: int) -> Snapshot:
        snapshot = syncing(second, synced=9, call="read")
        own = snapshot.processes[1]
        own_code = "train.py:<module>:2"
        if own.threads[0].state != "D":
            return snapshot
        wait = WaitedOn("disk", "read" if path else "-", (path,) if path else ("folio_wait",))
        if second % 10 < imports:
            wait = replace(wait, targets=("/lib/torch/functional.pyc",))
        taken = thread(200, *(filter(None, (stack, own_code)) if stack else ()), stack_age_s=0.0)
        blocked = replace(own.threads[0], stack=taken.stack, waits_on=wait, stack_age_s=0.0)
        own = replace(own, threads=(replace(blocked, wchan="folio_wait_bit_common"),))
        if not path:
            samples = tuple(replace(each, syscall=-1) for each in own.sample.threads or ())
            own = replace(own, sample=replace(own.sample, threads=samples))
        return replace(snapshot, processes=(snapshot.processes[0], own))

    assert bool(found(disk_waits.check, watched(make))) == is_told


@pytest.mark.parametrize(
    ("swapped", "words"), [(900 * MIB, "Use less memory"), (0, "Read the mapped file in order")]
)
def test_pages_that_are_read_are_distinguished_from_swapping(swapped: int, words: str) -> None:
    def paging(second: int) -> Snapshot:
        snapshot = syncing(second, memory=memory(swap_bytes=swapped))
        own = snapshot.processes[1]
        if own.threads[0].state != "D":
            return snapshot
        fault = replace(own.threads[0], waits_on=WaitedOn("disk", "-", ("folio_wait",)))
        fault = replace(fault, wchan="folio_wait_bit_common")
        samples = tuple(replace(each, syscall=-1) for each in own.sample.threads or ())
        own = replace(own, threads=(fault,), sample=replace(own.sample, threads=samples))
        return replace(snapshot, processes=(snapshot.processes[0], own))

    past = history({(200, "major_faults"): line(90_000, per_s=300)})
    finding = only(disk_waits.check, watched(paging), past)

    assert "for pages that are not in memory" in finding.summary
    assert any("300 pages in each second" in each for each in finding.evidence)
    assert any("swapped out" in each for each in finding.evidence) == bool(swapped)
    assert words in finding.advice


# --- page faults ---------------------------------------------------------------------------------


def filling(second: int) -> Snapshot:
    own = process(200, "spawned", threads=[thread(200, "data.py:padded:23", **RUNS)])
    return job(second, main(threads=[waits()]), ticked(own, {200: 100 * second}))


def faults(per_s: float, kernel_percent: float) -> History:
    return history(
        {
            (200, "minor_faults"): line(9e6, per_s=per_s),
            (200, "system_ticks"): line(9000, per_s=kernel_percent),
            (200, "cpu_percent"): line(100.0),
        }
    )


def test_kernel_time_for_fresh_memory_is_named_with_its_line() -> None:
    finding = only(page_fault_cost.check, watched(filling), faults(200_000, 70))

    assert finding.process == pid(200)
    assert finding.summary == (
        "spawned 200 (200) spends 70% of the time in the kernel, which gives it fresh memory at "
        "data.py:23 padded"
    )
    assert finding.evidence[0] == (
        "spawned 200 (200): 70% of its cpu time is kernel time (0.70 of 1.00 cores), at 200,000 "
        "minor page faults each second: 781M/s of memory mapped anew, at 4 KiB a page"
    )
    assert "at most 3.3 times as fast" in finding.evidence[-1]


@pytest.mark.parametrize(
    "past",
    [faults(200_000, 20), faults(3_000, 70), faults(25_000, 70)],
    ids=["little kernel time", "few faults", "too much kernel time for these faults"],
)
def test_other_kernel_time_and_other_faults_are_not_reported(past: History) -> None:
    assert found(page_fault_cost.check, watched(filling), past) == []


def reading(second: int, *, stack: tuple[str, ...] = (*RECV, "data.py:poll:26")) -> Snapshot:
    own = process(200, "spawned", threads=[thread(200, *stack, **RUNS)])
    fills = thread(300, "train.py:publish:14", waits=LARGE, stack_age_s=0.0)
    sender = process(300, "spawned", threads=[fills])
    return job(second, main(threads=[waits()]), ticked(own, {200: 100 * second}), sender)


def reads(per_s: float) -> History:
    return history(
        {
            (200, "minor_faults"): line(9e6, per_s=200_000),
            (200, "system_ticks"): line(9000, per_s=70),
            (200, "cpu_percent"): line(100.0),
            (200, "read_bytes"): line(1e9, per_s=per_s),
        }
    )


def test_fresh_memory_for_messages_is_said_to_be_for_what_is_received() -> None:
    finding = only(page_fault_cost.check, to_200(watched(reading), 200), reads(300e6))

    assert finding.summary.endswith("fresh memory for what it receives at data.py:26 poll")
    assert (
        "spawned 200 (200) reads 286M/s, and a message of at least 32.0M is on its way to it from "
        "spawned 300 (300) at train.py:14 publish"
    ) in finding.evidence
    assert finding.cause.startswith("Each message is received into memory of its own")
    assert finding.advice.startswith("Send less first")
    assert "MALLOC" not in finding.advice


@pytest.mark.parametrize(
    ("per_s", "stack"), [(1e6, (*RECV, "data.py:poll:26")), (300e6, ("data.py:padded:23",))]
)
def test_other_fresh_memory_is_not_said_to_be_for_messages(
    per_s: float, stack: tuple[str, ...]
) -> None:
    seen = watched(lambda second: reading(second, stack=stack))

    assert "receives" not in only(page_fault_cost.check, seen, reads(per_s)).summary


def test_fresh_memory_of_a_process_that_sends_is_not_said_to_be_for_what_it_receives() -> None:
    send = ("multiprocessing/connection.py:_send", "multiprocessing/connection.py:send_bytes")

    def make(second: int) -> Snapshot:
        own = thread(200, *send, "data.py:publish:40", is_active=True, **RUNS)
        sender = process(200, "spawned", threads=[own])
        return job(second, main(threads=[waits()]), ticked(sender, {200: 100 * second}))

    finding = only(page_fault_cost.check, watched(make), reads(300e6))

    assert "receives" not in finding.summary


def to_200(seen: Snapshot, *providers: int) -> Snapshot:
    """The message of 300 fills a pipe whose other end these processes have."""
    room = "room in a full pipe"
    edge = WaitEdge(pid(300), 300, "pipe-write", room, tuple(map(pid, providers)))
    return replace(seen, waits=WaitGraph((edge,)))


def test_one_stack_in_a_call_that_receives_is_no_sign_that_fresh_memory_is_for_messages() -> None:
    gets = ("multiprocessing/queues.py:get", "data.py:poll:26")

    def make(second: int) -> Snapshot:
        return reading(second, stack=gets if second == SECONDS else ("data.py:padded:23",))

    # What it reads may come from files.
    finding = only(page_fault_cost.check, watched(make), reads(300e6))

    assert "receives" not in finding.summary
    assert "Send less" not in finding.advice


@pytest.mark.parametrize(("providers", "is_told"), [((200,), True), ((200, MAIN), False)])
def test_a_message_that_another_process_may_read_is_not_said_to_be_on_its_way(
    providers: tuple[int, ...], is_told: bool
) -> None:
    seen = to_200(watched(reading), *providers)

    finding = only(page_fault_cost.check, seen, reads(300e6))

    assert ("is on its way to it" in " ".join(finding.evidence)) is is_told


def test_the_line_of_most_work_is_not_said_to_be_the_one_that_receives() -> None:
    loads = SourceLine("/home/me/data.py", 30, "load", Statement(30, "x = torch.load(raw)"))
    seen = watched(lambda second: reading(second, stack=("data.py:load:30",)))
    seen = to_200(replace(seen, source=(loads,)), 200)

    finding = only(page_fault_cost.check, seen, reads(300e6))

    assert finding.summary.endswith("fresh memory for what it receives")
    assert "spawned 200 (200) was last seen at data.py:30 load" in finding.evidence


def test_a_line_that_a_process_has_left_is_not_told_as_the_place_of_the_work() -> None:
    def make(second: int) -> Snapshot:
        # Later stacks show none of its own lines.
        stack = ("train.py:__init__:19",) if second < 15 else ()
        own = process(200, "spawned", threads=[thread(200, *stack, **RUNS)])
        return job(second, main(threads=[waits()]), ticked(own, {200: 100 * second}))

    finding = only(page_fault_cost.check, watched(make), faults(200_000, 70))

    assert "__init__" not in " ".join((finding.summary, *finding.evidence))
