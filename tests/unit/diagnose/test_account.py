from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.describe.waits import edge_words
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.account import EVERY_S, MANY, THREADS_LIMIT, advanced
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.providers import RECENT_S
from mpwatch.diagnose.engine import Engine
from mpwatch.model.account import (
    ARCHIVE_TABLE,
    COPYING,
    DECOMPRESSION,
    FUTURE_RESULT,
    OWN_CODE,
    PICKLING,
    SEEKING,
    STARTING,
    TRANSFERS,
    UNPICKLING,
    Account,
    Activity,
)
from mpwatch.model.history import History
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import VFORKED, Ended, FdLink, HeldLock, ThreadSample, WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from tests.builders.snapshots import (
    IDLE_WORKER,
    MAIN,
    NO_HISTORY,
    NOW_S,
    WAITING_MAIN,
    fds,
    main,
    pid,
    pipe,
    process,
    snapshot_of,
    socket,
    thread,
)
from tests.builders.waits import C10D, DATA, reads, waiting_main, worker

OWN_LOCK = WaitedOn("futex", "futex", ("futex 0x7f",), address=0x7F, futex_command=9)


def account(*snapshots: Snapshot) -> Account:
    found = Account()
    for snapshot in snapshots:
        index = Index(snapshot)
        found = advanced(found, index, wait_graph(index))
    return found


def now(*processes: Process, of: int = MAIN, number: int = 0) -> Activity:
    """What a thread does according to one reading."""
    return account(snapshot_of(*processes)).processes[pid(of)].threads[number].now


def doing(*calls: str, waits: WaitedOn | None = None, state: str = "S", **more: Any) -> Activity:
    """What the main thread of a process without children does, with a new stack."""
    return now(main(threads=[thread(MAIN, *calls, waits=waits, state=state, **_new(calls, more))]))


def _new(calls: tuple[str, ...], more: dict[str, Any]) -> dict[str, Any]:
    return {"stack_age_s": 0.0, **more} if calls else more


def with_ticks(found: Process, ticks: int, **more: Any) -> Process:
    """The process with this cpu time of its main thread."""
    return replace(
        found, sample=replace(found.sample, threads=(ThreadSample(found.pid, "p", "S", ticks),))
    )


# --- what a thread does --------------------------------------------------------------------------


def test_a_running_thread_computes_where_its_new_stack_says() -> None:
    stack = ("torch/nn/functional.py:linear", "train.py:step:57")

    found = doing(*stack, state="R", has_gil=True, cpu_percent=90.0)

    assert found == Activity("computing", "Python code", place="train.py:57 step")


def test_a_parent_waits_until_a_spawned_child_has_read_what_it_needs() -> None:
    stack = ("multiprocessing/popen_spawn_posix.py:_launch", "train.py:epoch:29")
    full = WaitedOn("pipe-write", "write", ("pipe:[77]",), (4,))

    found = doing(*stack, waits=full)

    assert found == Activity("waiting", STARTING, place="train.py:29 epoch")


HANDLER = ("multiprocessing/pool.py:_handle_tasks", "threading.py:run")
DUMPS = ("torch/nn/modules/module.py:__getstate__", "multiprocessing/reduction.py:dumps")


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ((*DUMPS, *HANDLER), PICKLING),
        (("data.py:read:7", *HANDLER), ""),
        (HANDLER, None),
        (("multiprocessing/connection.py:_send", *HANDLER), None),
        (DUMPS, PICKLING),
    ],
    ids=["pickles", "the program's iterator", "waits for tasks", "may wait for room", "no helper"],
)
def test_a_stack_of_a_hook_shows_what_a_helper_of_a_pool_does(
    stack: tuple[str, ...], kind: str | None
) -> None:
    found = doing(*stack, state="R", cpu_percent=40.0)

    place = "data.py:7 read" if kind == "" else ""
    assert found == Activity("computing", kind or "", place=place)


def test_a_running_thread_without_the_gil_runs_native_code() -> None:
    found = doing("train.py:step:57", state="R", has_gil=False, cpu_percent=90.0)

    assert found == Activity("computing", "native code", place="train.py:57 step")


def test_a_seek_in_a_compressed_file_is_distinguished_from_reading_it() -> None:
    own = ("gzip.py:seek", "data.py:__getitem__:45"), ("gzip.py:read", "data.py:__getitem__:46")
    seeks, reads = (doing("_compression.py:read", *each, state="R", has_gil=True) for each in own)

    assert seeks == Activity("computing", SEEKING, place="data.py:45 __getitem__")
    assert reads == Activity("computing", DECOMPRESSION, place="data.py:46 __getitem__")
    writes = doing("gzip.py:write", "data.py:pack:31", state="R", has_gil=True)
    assert writes == Activity("computing", "Python code", place="data.py:31 pack")


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("zipfile.py:_RealGetContents", ARCHIVE_TABLE),
        ("zipfile/__init__.py:_RealGetContents", ARCHIVE_TABLE),
        ("tarfile.py:_getmember", ARCHIVE_TABLE),
        ("tarfile.py:next", "Python code"),
        ("zipfile.py:_read1", DECOMPRESSION),
    ],
)
def test_the_table_of_an_archive_is_distinguished_from_its_entries(call: str, what: str) -> None:
    inner = ("zipfile.py:_decodeExtra",) if "Contents" in call else ()

    found = doing(*inner, call, "data.py:__getitem__:24", state="R", has_gil=True)

    assert found == Activity("computing", what, place="data.py:24 __getitem__")


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"stack_age_s": RECENT_S + 1, "has_gil": True}, ""),
        ({"stack_age_s": 0.5, "has_gil": None, "cpu_percent": 20.0}, OWN_CODE.what),
    ],
    ids=["old", "mostly waiting"],
)
def test_a_stack_that_may_be_out_of_date_gives_no_place(more: dict[str, Any], what: str) -> None:
    assert doing("train.py:step:57", state="R", **more) == Activity("computing", what)


def test_a_thread_that_never_waits_for_anything_but_a_core_has_its_place_after_a_wait() -> None:
    """A hook does not tell whether the thread ran when it took the stack."""
    begun = main(threads=[thread(MAIN, "train.py:load:9", waits=OWN_LOCK)])
    busy = thread(MAIN, "train.py:step:57", state="R", stack_age_s=1.0, cpu_percent=25.0)
    seen = [snapshot_of(with_ticks(begun, 0), at_s=NOW_S + n) for n in range(4)]
    seen += [
        snapshot_of(with_ticks(main(threads=[busy]), 25 * n), at_s=NOW_S + 4 + n) for n in range(14)
    ]

    def last_of(count: int) -> Activity:
        return account(*seen[:count]).processes[pid(MAIN)].main.now

    assert last_of(7) == OWN_CODE
    assert last_of(18) == Activity("computing", place="train.py:57 step")


def test_a_stack_that_was_taken_while_the_thread_ran_is_of_its_computing() -> None:
    found = doing("train.py:step:57", state="R", is_active=True, has_gil=False, cpu_percent=20.0)

    assert found.place == "train.py:57 step"


def test_a_running_thread_whose_stack_is_of_a_wait_has_no_place() -> None:
    assert doing(*WAITING_MAIN, state="R", cpu_percent=60.0) == Activity("computing")


def test_a_rank_that_runs_in_a_collective_is_in_that_collective() -> None:
    stack = (f"{C10D}:all_reduce", "train.py:step:57")

    found = doing(*stack, state="R", has_gil=False, cpu_percent=99.0)

    assert found == Activity("computing", "all_reduce", "collective", place="train.py:57 step")


def test_a_loop_that_only_polls_spins_at_its_line() -> None:
    stack = ("multiprocessing/queues.py:empty", "train.py:drain:12")

    found = doing(*stack, state="R", has_gil=True, cpu_percent=99.0)

    assert found == Activity("spinning", place="train.py:12 drain")


def test_a_poll_that_takes_little_of_a_core_is_not_spinning() -> None:
    stack = ("multiprocessing/queues.py:empty", "train.py:drain:12")

    assert doing(*stack, state="R", has_gil=True, cpu_percent=40.0).kind == "computing"


def test_a_thread_that_unpickles_does_so_at_the_line_that_receives() -> None:
    stack = ("multiprocessing/queues.py:get", "train.py:infer:32")

    found = doing(*stack, state="R", has_gil=True, cpu_percent=90.0)

    assert found == Activity("computing", UNPICKLING, place="train.py:32 infer")


@pytest.mark.parametrize(
    ("inner", "place"),
    [
        (("data.py:__setstate__:24",), "train.py:32 serve"),
        ((), "train.py:32 serve"),
        # It asks another process while it unpickles.
        (
            ("multiprocessing/connection.py:recv", "data.py:__setstate__:24"),
            "data.py:24 __setstate__",
        ),
    ],
)
def test_a_thread_that_reads_does_so_at_the_line_that_receives(
    inner: tuple[str, ...], place: str
) -> None:
    """Not in what unpickles the object, where it was when its stack was taken."""
    stack = (*inner, "multiprocessing/connection.py:recv", "train.py:serve:32")

    found = doing(*stack, waits=WaitedOn("socket-read", "recvfrom", ("socket:[9]",)))

    assert (found.kind, found.place) == ("waiting", place)


@pytest.mark.parametrize("call", ["queues.py:get", "connection.py:_recv"])
def test_a_stack_that_was_taken_in_a_wait_for_a_message_is_not_of_its_transfer(call: str) -> None:
    stack = (f"multiprocessing/{call}", "train.py:infer:32")

    found = doing(*stack, state="R", has_gil=False, is_active=False, cpu_percent=90.0)

    assert found.what not in TRANSFERS


def test_bytes_are_copied_through_a_pipe_where_the_thread_ran_in_the_call() -> None:
    stack = ("multiprocessing/connection.py:_send", "train.py:acquire:26")

    found = doing(*stack, state="R", has_gil=False, is_active=True, cpu_percent=90.0)

    assert found == Activity("computing", COPYING, place="train.py:26 acquire")
    assert doing(*stack, state="R", has_gil=False, cpu_percent=90.0) == Activity("computing")


def at_disk(call: str, **more: Any) -> Activity:
    wait = WaitedOn("disk", call, ("/runs/a.log", "folio_wait_bit"), (3,))
    return doing("train.py:write:12", waits=wait, state="D", **more)


@pytest.mark.parametrize(
    ("stack", "what"),
    [
        (("multiprocessing/reduction.py:dumps", "multiprocessing/connection.py:send"), PICKLING),
        (("multiprocessing/connection.py:recv",), UNPICKLING),
        (("data.py:__setstate__:24", "multiprocessing/connection.py:recv"), UNPICKLING),
        (("multiprocessing/connection.py:_recv", "multiprocessing/connection.py:recv"), ""),
        (("multiprocessing/queues.py:get",), ""),
    ],
)
def test_a_stack_of_the_hook_in_a_pickler_shows_work_also_where_cores_are_short(
    stack: tuple[str, ...], what: str
) -> None:
    """Nothing is waited for there; a thread that shares a core has less than half of one."""
    found = doing(*stack, "train.py:step:57", state="R", cpu_percent=20.0)

    assert (found.kind, found.what) == ("computing", what)


def test_a_wait_for_a_disk_names_file_and_call() -> None:
    assert at_disk("fsync").what == "fsync of /runs/a.log"
    assert at_disk("read").what == "/runs/a.log (a disk or file server)"
    assert at_disk("fsync").target == at_disk("read").target == "file"


@pytest.mark.parametrize(
    ("channel", "what"),
    [
        ("os_acquire_rwlock_write", "a lock of the NVIDIA driver"),
        ("do_madvise", "the lock of its own memory mappings"),
        ("usb_wait", "a disk or driver in the kernel's usb_wait"),
    ],
)
def test_an_uninterruptible_wait_is_named_by_the_function_of_the_kernel(
    channel: str, what: str
) -> None:
    wait = WaitedOn("disk", "ioctl", (channel,))

    assert doing("train.py:write:12", waits=wait, state="D", wchan=channel).what == what


def test_a_stack_of_another_wait_shows_the_line_where_all_waits_are_for_a_disk() -> None:
    wait = WaitedOn("disk", "fsync", ("/runs/a.log",), (3,))
    stack: dict[str, Any] = {"stack_age_s": 1.0, "is_active": False, "still_s": 0.0}
    syncs = main(threads=[thread(MAIN, "train.py:write:12", waits=wait, state="D", **stack)])
    runs = main(threads=[thread(MAIN, state="R")])
    sleeps = main(threads=[thread(MAIN, waits=WaitedOn("timer", "clock_nanosleep"))])

    def place(*before: Process) -> str:
        jobs = [snapshot_of(each, at_s=NOW_S + n) for n, each in enumerate((*before, syncs))]
        return account(*jobs).processes[pid(MAIN)].main.now.place

    assert place(syncs, runs) == "train.py:12 write"
    assert place(sleeps) == ""
    assert place(syncs, sleeps) == ""


def test_main_waits_for_batches_and_their_worker() -> None:
    assert now(waiting_main(), worker()) == Activity("waiting", "batches", "batch", (pid(200),))


def test_main_waits_for_batches_by_its_stack() -> None:
    found = doing(*WAITING_MAIN, waits=reads(DATA))

    assert (found.kind, found.target) == ("waiting", "batch")


def test_an_idle_worker_waits_by_design() -> None:
    assert now(main(), worker(), of=200) == Activity("idle", "work")


TASK_LOCK = WaitedOn("semaphore", "futex", (), segment=SegmentId(0x1B, 900))
OTHER_LOCK = WaitedOn("semaphore", "futex", (), segment=SegmentId(0x1B, 901))
LOOPS = (
    "multiprocessing/pool.py:worker",
    "concurrent/futures/process.py:_process_worker",
    "joblib/externals/loky/process_executor.py:_process_worker",
)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_worker_of_a_pool_that_waits_for_the_lock_of_its_tasks_is_idle(loop: str) -> None:
    stack = ("multiprocessing/synchronize.py:__enter__", "multiprocessing/queues.py:get", loop)
    known = process(200, "pool-worker", threads=[thread(200, *stack, waits=TASK_LOCK, **NEW)])
    # A wait of which there is no stack, as it is short, is known by that of another worker.
    short = process(201, "pool-worker", threads=[thread(201, waits=TASK_LOCK, still_s=0.1)])
    other = process(202, "pool-worker", threads=[thread(202, waits=OTHER_LOCK, still_s=0.1)])

    assert now(main(), known, short, other, of=200) == Activity("idle", "something to do")
    assert now(main(), known, short, other, of=201) == Activity("idle", "something to do")
    assert now(main(), known, short, other, of=202).kind == "waiting"
    # A stack between two such waits is of a task, and no system call of that is for a task.
    task = thread(203, "train.py:solve:31", waits=TASK_LOCK, **NEW)
    between = process(203, "pool-worker", threads=[task])
    assert now(main(), known, between, of=203) == Activity("idle", "something to do")
    assert now(main(), short, of=201).kind == "waiting"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_task_of_a_pool_that_waits_for_a_lock_or_a_queue_is_not_idle(loop: str) -> None:
    task = ("multiprocessing/queues.py:get", "train.py:solve:31", loop)
    takes = process(200, "pool-worker", threads=[thread(200, *task, waits=TASK_LOCK, **NEW)])

    assert now(main(), takes, of=200).kind == "waiting"


def test_the_parent_of_ranks_waits_for_their_exits() -> None:
    own = ("multiprocessing/connection.py:wait", "torch/multiprocessing/spawn.py:join")
    ends = WaitedOn("poll", "poll", ("pipe:[77]", "pipe:[78]"), (4, 5), timeout_s=0.6)

    found = doing(*own, "train.py:main:57", waits=ends)

    assert found == Activity("waiting", "the exit of a child", "child", place="train.py:57 main")


def test_main_waits_for_futures_as_they_complete() -> None:
    inner = ("threading.py:wait:331", "threading.py:wait:629")
    for function in ("as_completed", "wait", "result"):
        own = (*inner, f"concurrent/futures/_base.py:{function}", "train.py:main:57")
        expected = Activity("waiting", FUTURE_RESULT, "thread", place="train.py:57 main")
        assert doing(*own, waits=OWN_LOCK) == expected


NEW: dict[str, Any] = {"stack_age_s": 0.0}


def test_an_idle_worker_is_known_by_its_stack() -> None:
    idle = thread(200, *IDLE_WORKER, waits=reads(600), stack_age_s=0.0)

    assert now(main(), worker(0, idle), of=200) == Activity("idle", "work")


@pytest.mark.parametrize(
    ("wait", "kind", "target", "words"),
    [
        (WaitedOn("timer", "clock_nanosleep"), "sleeping", "", ""),
        (WaitedOn("poll", "poll"), "sleeping", "", ""),
        (WaitedOn("pipe-read", "read", ("pipe:[9]",)), "waiting", "pipe", "data on pipe 9"),
        (WaitedOn("pipe-write", "write", ("pipe:[9]",)), "waiting", "pipe", "room in a full pipe"),
        (WaitedOn("child", "wait4", ("any child",)), "waiting", "child", "the exit of a child"),
        (WaitedOn("socket-read", "recvfrom", ("socket:[9]",)), "waiting", "socket", "data on "),
        (WaitedOn("unknown", "flock", ("/data/a",)), "waiting", "lock", "the lock on /data/a"),
        (
            WaitedOn("semaphore", "futex", segment=SegmentId(9, 7)),
            "waiting",
            "lock",
            "semaphore 9:7",
        ),
        (OWN_LOCK, "waiting", "lock", "a lock or condition of its own process"),
    ],
    ids=lambda value: value.kind if isinstance(value, WaitedOn) else "",
)
def test_a_wait_is_named_by_its_system_call(
    wait: WaitedOn, kind: str, target: str, words: str
) -> None:
    found = doing(waits=wait)

    assert (found.kind, found.target) == (kind, target)
    assert found.what.startswith(words)


@pytest.mark.parametrize(
    "wait",
    [
        WaitedOn("pipe-read", "read", ("pipe:[9]",)),
        WaitedOn("pipe-read", "read", ("/run/requests",)),
        WaitedOn("pipe-write", "write", ("pipe:[9]",)),
        WaitedOn("socket-read", "recvfrom", ("socket:[9]",)),
        WaitedOn("socket-write", "sendto", ("socket:[9]",)),
        WaitedOn("poll", "epoll_wait", ("pipe:[9]", "socket:[8]")),
        WaitedOn("accept", "accept4", ("socket:[9]",)),
    ],
    ids=lambda wait: f"{wait.kind} {wait.targets[0]}",
)
def test_a_wait_has_the_name_in_the_account_that_screens_show(wait: WaitedOn) -> None:
    job = snapshot_of(main(threads=[thread(MAIN, waits=wait)]))
    (edge,) = wait_graph(Index(job)).edges

    assert f"waits for {account(job).processes[pid(MAIN)].main.now.what}" == edge_words(edge)
    assert "[" not in edge_words(edge)


@pytest.mark.parametrize(
    ("stack", "target", "words"),
    [
        (("threading.py:wait", "threading.py:_wait"), "barrier", "the other parties of a barrier"),
        (("threading.py:wait", "queue.py:get"), "queue", "an item of a queue"),
        (("threading.py:wait", "queue.py:put"), "queue", "room in a full queue"),
        (("multiprocessing/synchronize.py:__enter__",), "lock", "a lock between processes"),
        (("multiprocessing/synchronize.py:wait",), "event", "an event or condition"),
        (("threading.py:join",), "thread", "the end of another thread"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wait_is_named_by_a_stack_taken_during_it(
    stack: tuple[str, ...], target: str, words: str
) -> None:
    found = doing(*stack, "train.py:run:9", waits=OWN_LOCK)

    assert (found.kind, found.target, found.place) == ("waiting", target, "train.py:9 run")
    assert found.what.startswith(words)


def test_a_wait_is_not_named_by_a_stack_from_before_it() -> None:
    found = doing(
        "multiprocessing/synchronize.py:__enter__",
        "train.py:run:9",
        waits=WaitedOn("timer", "nanosleep"),
        stack_age_s=1.5,
        still_s=None,
        waits_s=0.3,
    )

    assert found == Activity("sleeping")


def test_a_full_pipe_is_named_with_the_process_that_would_read_it() -> None:
    writes = WaitedOn("pipe-write", "write", (f"pipe:[{DATA}]",))
    ends = fds(4, links=[pipe(3, DATA, False), pipe(4, DATA, True)])
    reader = process(300, threads=[thread(300)], fds=ends)

    found = now(main(threads=[thread(MAIN, waits=writes)], fds=ends), reader)

    assert (found.what, found.providers) == ("room in a full pipe (pipe 500)", (reader.process,))


@pytest.mark.parametrize(("holders", "is_of_many"), [(0, False), (1, False), (3, True)])
def test_a_wait_that_many_processes_of_the_job_can_end_is_none_for_something_outside(
    holders: int, is_of_many: bool
) -> None:
    reads = WaitedOn("socket-read", "recvfrom", ("socket:[700]",))
    own = main(threads=[thread(MAIN, waits=reads)], fds=fds(4, links=[socket(3, 700, 701)]))
    ends = fds(4, links=[socket(3, 701, 700)])
    others = [
        process(300 + n, "spawned", threads=[thread(300 + n)], fds=ends) for n in range(holders)
    ]

    found = now(own, *others)

    assert len(found.providers) == (0 if is_of_many else holders)
    assert found.is_of_many is is_of_many


def test_sleeps_between_attempts_to_take_a_file_lock_are_a_wait_for_its_holder() -> None:
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.25)
    path = "/data/set.lock"
    tries = main(
        threads=[thread(MAIN, "data.py:acquire:28", waits=sleeps, stack_age_s=0.0)],
        fds=fds(4, links=[FdLink(3, "file", path, None, True)]),
    )
    lock = HeldLock(path, "flock", True, 300)
    holder = process(300, threads=[thread(300)], fds=replace(fds(4, links=[]), locks=(lock,)))

    assert now(tries, holder) == Activity(
        "waiting", f"the lock on {path}", "lock", (holder.process,), "data.py:28 acquire"
    )


def test_the_semaphore_of_a_lock_is_named_with_the_line_that_waits() -> None:
    waits = WaitedOn("semaphore", "futex", segment=SegmentId(9, 7))

    found = doing("multiprocessing/synchronize.py:__enter__", "train.py:run:9", waits=waits)

    assert found == Activity("waiting", "semaphore 9:7", "lock", place="train.py:9 run")


def test_a_stack_from_before_the_present_wait_gives_no_line() -> None:
    waits = WaitedOn("semaphore", "futex", segment=SegmentId(9, 7))

    found = doing("train.py:rest:8", waits=waits, stack_age_s=0.4, waits_s=0.3, still_s=0.5)

    assert found.place == ""


def test_a_thread_that_waits_in_steps_of_5_ms_beside_a_running_one_waits_for_the_gil() -> None:
    waits = replace(OWN_LOCK, timeout_s=0.004)
    threads = [thread(MAIN, waits=waits), thread(101, state="R")]

    assert now(main(threads=threads)).target == "gil"


@pytest.mark.parametrize(
    ("timeout_s", "other"), [(0.004, "S"), (0.2, "R"), (None, "R")], ids=["alone", "long", "open"]
)
def test_another_wait_for_a_lock_is_not_one_for_the_gil(
    timeout_s: float | None, other: str
) -> None:
    waits = replace(OWN_LOCK, timeout_s=timeout_s)
    threads = [thread(MAIN, waits=waits), thread(101, state=other, waits=OWN_LOCK)]

    assert now(main(threads=threads)).target == "lock"


def test_a_file_that_is_read_is_named() -> None:
    waits = WaitedOn("disk", "read", ("/data/shard-3.tar", "folio_wait_bit_common"))

    found = doing(waits=waits, state="D")

    assert found == Activity("waiting", "/data/shard-3.tar (a disk or file server)", "file")


def test_a_parent_in_vfork_is_not_said_to_wait_for_a_disk() -> None:
    found = doing(waits=WaitedOn("disk", "-", (VFORKED, "kernel_clone")), state="D")

    assert found == Activity("waiting", "the exec or exit of a child that it starts")


def test_a_page_fault_is_distinguished_from_a_read() -> None:
    blocked = thread(MAIN, state="D", wchan="folio_wait_bit_common", waits=WaitedOn("disk", "-"))
    found = main(threads=[blocked])
    outside = replace(ThreadSample(MAIN, "p", "D", 0), syscall=-1)
    found = replace(found, sample=replace(found.sample, threads=(outside,)))

    assert now(found).target == "page-faults"


def test_a_stopped_thread_is_stopped() -> None:
    assert doing(state="T") == Activity("stopped", "by a signal")


def test_an_unreadable_system_call_is_unknown_with_the_reason() -> None:
    assert doing(waits=None) == Activity("unknown", "its system call could not be read")


# --- over time -----------------------------------------------------------------------------------


def at(after_s: float, *threads: Thread, ticks: int = 0) -> Snapshot:
    return snapshot_of(with_ticks(main(threads=threads), ticks), at_s=NOW_S + after_s)


def test_shares_follow_the_counters_and_the_readings() -> None:
    sleeps = thread(MAIN, waits=WaitedOn("timer", "nanosleep"))
    runs = thread(MAIN, state="R")
    snapshots = [
        at(second, runs if second % 4 == 0 else sleeps, ticks=25 * second) for second in range(41)
    ]

    shares = account(*snapshots).processes[pid(MAIN)].main.last_minute().shares()

    assert [(each.activity.kind, round(each.share, 2)) for each in shares] == [
        ("sleeping", 0.75),
        ("computing", 0.25),
    ]


def test_a_stop_for_taking_stacks_does_not_count_as_a_stop_of_the_program() -> None:
    sleeps = thread(MAIN, waits=WaitedOn("timer", "nanosleep"))
    traced = thread(MAIN, state="t", waits=WaitedOn("stopped", "-"), waits_s=0.0)

    found = account(at(0, sleeps), at(1, traced), at(2, sleeps)).processes[pid(MAIN)]

    assert [each.activity.kind for each in found.main.whole().shares()] == ["sleeping"]


def test_a_debugger_that_stays_attached_is_reported() -> None:
    traced = thread(MAIN, state="t", waits=WaitedOn("stopped", "-"), waits_s=20.0)

    assert account(at(0, traced)).processes[pid(MAIN)].main.now.kind == "stopped"


def test_threads_that_have_ended_are_dropped_and_the_main_one_outlives_its_process() -> None:
    threads = [thread(MAIN), thread(101), thread(102)]
    alive = account(
        snapshot_of(main(threads=threads)), snapshot_of(main(threads=threads[:2]), at_s=NOW_S + 1)
    )
    ended = main(threads=threads, ended=Ended(pid(MAIN), NOW_S + 2))
    index = Index(snapshot_of(ended, at_s=NOW_S + 2))

    dead = advanced(alive, index, wait_graph(index))

    assert [each.tid for each in alive.processes[pid(MAIN)].threads] == [MAIN, 101]
    assert [each.tid for each in dead.processes[pid(MAIN)].threads] == [MAIN]


def test_the_threads_that_are_kept_are_bounded() -> None:
    threads = [thread(MAIN + n) for n in range(THREADS_LIMIT + 5)]

    found = account(snapshot_of(main(threads=threads))).processes[pid(MAIN)]

    assert (len(found.threads), found.omitted) == (THREADS_LIMIT, 5)


def test_a_large_job_is_accounted_for_on_every_third_reading() -> None:
    others = [process(200 + n, threads=[thread(200 + n)]) for n in range(MANY)]
    found = [snapshot_of(main(threads=[thread(MAIN)]), *others, at_s=NOW_S + n) for n in range(5)]

    assert account(*found[:3]).at_s == NOW_S
    assert account(*found).at_s == NOW_S + 3 > NOW_S + EVERY_S


def test_a_thread_that_does_the_same_as_before_keeps_its_account() -> None:
    sleeps = thread(MAIN, waits=WaitedOn("timer", "nanosleep"))

    first = account(at(0, sleeps))
    second = account(at(0, sleeps), at(1, sleeps))

    known = first.processes[pid(MAIN)].uncounted[0]
    assert second.processes[pid(MAIN)].uncounted[0] == known
    assert second.processes[pid(MAIN)].main.whole().observed_s == 1.0


def test_the_worker_of_the_awaited_batch_may_change_while_main_waits() -> None:
    first = snapshot_of(waiting_main(), worker())
    second = snapshot_of(
        waiting_main(), worker(0, ended=Ended(pid(200), NOW_S)), worker(1), at_s=NOW_S + 1
    )

    assert account(first).processes[pid(MAIN)].main.now.providers == (pid(200),)
    assert account(first, second).processes[pid(MAIN)].main.now.providers == (pid(201),)


def test_an_account_begins_again_for_an_older_snapshot_and_for_another_job() -> None:
    later = account(at(10, thread(MAIN)), at(20, thread(MAIN)))
    other = process(7, "main", parent=None, threads=[thread(7)])

    for snapshot in (at(0, thread(MAIN)), snapshot_of(other, at_s=NOW_S + 30)):
        index = Index(snapshot)
        assert advanced(later, index, wait_graph(index)).readings == 1


def test_the_engine_adds_to_the_account_and_a_preview_does_not() -> None:
    engine = Engine(())
    first = engine.diagnosed(at(0, thread(MAIN)), History()).account

    preview = engine.preview(at(1, thread(MAIN)), History()).account
    second = engine.diagnosed(at(2, thread(MAIN)), History()).account

    assert [each.readings for each in (first, preview, second)] == [1, 2, 2]
    assert second.watched_s == 2.0


def test_an_error_in_the_account_is_a_finding_and_the_rules_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> Account:
        raise ValueError("a reading it did not expect")

    monkeypatch.setattr("mpwatch.diagnose.engine.advanced", broken)

    findings = Engine(()).diagnosed(at(0, thread(MAIN)), NO_HISTORY).findings

    assert [(each.rule, each.subject) for each in findings] == [("rule-failed", "account")]
    assert findings[0].summary == "what processes did with their time could not be determined"


def test_the_account_is_kept_where_the_root_was_never_read() -> None:
    orphans = [
        snapshot_of(process(200, threads=[thread(200)]), root=pid(MAIN), at_s=NOW_S + n)
        for n in range(3)
    ]

    found = account(*orphans)

    assert (found.readings, found.watched_s) == (3, 2.0)


@pytest.mark.parametrize(("name", "what"), [("gloo_tcp_loop", "the backward pass"), ("python", "")])
def test_a_rank_that_waits_in_the_backward_pass_waits_for_a_collective(
    name: str, what: str
) -> None:
    backward = ("torch/autograd/graph.py:_engine_run_backward", "train.py:step:33")
    waits = thread(MAIN, *backward, waits=OWN_LOCK, stack_age_s=0.1, waits_s=9.0)
    found = now(main(threads=[waits, thread(MAIN + 1, name=name)]))

    assert (found.target == "collective", found.what == what) == (bool(what), bool(what))
    assert found.place == "train.py:33 step"


def test_a_process_whose_threads_could_not_be_read_keeps_the_account_that_it_had() -> None:
    """A process that is about to exit has stacks of a moment ago, and no list of threads."""
    child = process(300, role="spawned", threads=[thread(300, "train.py:work:3", waits=OWN_LOCK)])
    ending = replace(child, sample=replace(child.sample, threads=None))
    first, later = snapshot_of(main(), child), snapshot_of(main(), ending, at_s=NOW_S + 1)

    assert account(first, later).processes[pid(300)].threads
    assert pid(300) not in account(snapshot_of(main(), ending)).processes


def test_a_process_whose_threads_cannot_be_read_any_more_keeps_its_account() -> None:
    """Between the end of its threads and its exit it is in the tree, and waits for nothing."""
    waits = main(threads=[thread(MAIN, waits=OWN_LOCK)])
    ends = replace(waits, threads=(), sample=replace(waits.sample, state="Z", threads=()))

    before = snapshot_of(waits)
    found = account(before, replace(snapshot_of(ends), at_s=before.at_s + EVERY_S))

    assert found.readings == 2
    assert found.processes[pid(MAIN)].threads[0].now.kind == "waiting"
