from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.stack_patterns import HOOK_THREAD
from mpwatch.diagnose.rules.hangs import event_set_hangs, queue_lock_held_by_dead
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    exited,
    found,
    log,
    main,
    only,
    pid,
    process,
    segment,
    snapshot_of,
    thread,
)

STILL = 60.0


LOCK = SegmentId(9, 77)
IN_LOCK = (
    "multiprocessing/synchronize.py:__enter__",
    "multiprocessing/queues.py:get",
    "train.py:f",
)
KILLED = process(400, "spawned", ended=exited(400, signal=9))
FAILED = process(400, "spawned", ended=exited(400, exit_code=1))


def at_lock(number: int, *stack: str, value: int = 0, **more: Any) -> Process:
    wait = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=LOCK, value=value)
    own = thread(number, *(stack or IN_LOCK), waits=wait, still_s=STILL)
    return process(number, "spawned", threads=[own], **more)


def lock(*users: int) -> Any:
    return segment(77, kind="semaphore", mappers=tuple(map(pid, users)))


def test_a_lock_held_by_a_killed_reader_is_named() -> None:
    job = snapshot_of(main(), at_lock(300), at_lock(301), KILLED, segments=(lock(100, 300, 301),))

    finding = only(queue_lock_held_by_dead.check, job)

    assert "spawned 300 (300) and spawned 301 (301) wait for the lock of a queue" in finding.summary
    assert any("SIGKILL" in each for each in finding.evidence)


def test_a_single_waiter_is_named_in_the_singular() -> None:
    job = snapshot_of(main(), at_lock(300), KILLED, segments=(lock(300),))

    finding = only(queue_lock_held_by_dead.check, job)

    assert "spawned 300 (300) waits for the lock of a queue" in finding.summary


@pytest.mark.parametrize(
    "others",
    [
        (),
        (process(301, "spawned", threads=[thread(301, state="R")]), KILLED),
        (
            process(301, "spawned", threads=[thread(301, waits=WaitedOn("pipe-read", "read"))]),
            KILLED,
        ),
        (process(301, "spawned", threads=[thread(301, "queues.py:get", "train.py:f")]), KILLED),
    ],
)
def test_a_lock_that_a_running_process_may_hold_is_quiet(others: tuple[Process, ...]) -> None:
    job = snapshot_of(main(), at_lock(300), *others, segments=(lock(300, 301),))

    assert found(queue_lock_held_by_dead.check, job) == []


def test_a_parent_that_collects_results_does_not_hold_the_lock_of_the_tasks() -> None:
    get = "multiprocessing/queues.py:get"
    collecting = main(
        threads=[thread(MAIN, get, "train.py:collect", waits=WaitedOn("pipe-read", "read"))]
    )
    dead = replace(KILLED, threads=(thread(400, get, "train.py:consume"),))
    waiting = at_lock(300, "multiprocessing/synchronize.py:__enter__", get, "train.py:consume")
    job = snapshot_of(collecting, waiting, dead, segments=(lock(300, MAIN),))

    assert "spawned 300 (300) waits" in only(queue_lock_held_by_dead.check, job).summary


TERMINATED = process(400, "spawned", ended=exited(400, signal=15))
ENTERS = ("multiprocessing/synchronize.py:__enter__", "train.py:trial:13")
JOINS = WaitedOn("child", "wait4", ("pid 300",))
JOINING = main(threads=[thread(MAIN, "multiprocessing/process.py:join", waits=JOINS)])


def test_a_lock_held_by_a_terminated_process_is_named_if_no_other_can_hold_it() -> None:
    job = snapshot_of(JOINING, at_lock(300, *ENTERS), TERMINATED, segments=(lock(MAIN, 300),))

    finding = only(queue_lock_held_by_dead.check, job)

    assert "waits for a lock that a terminated process still held" in finding.summary
    assert "spawned 400 (400) ended: signal 15 (SIGTERM)" in finding.evidence
    assert "terminate()" in finding.cause
    assert "consumer" not in finding.advice


@pytest.mark.parametrize(
    "job",
    [
        snapshot_of(main(threads=[thread(MAIN, "train.py:f")]), at_lock(300, *ENTERS), TERMINATED),
        snapshot_of(JOINING, at_lock(300, "train.py:round"), TERMINATED),
        snapshot_of(JOINING, at_lock(300, *ENTERS), process(400, ended=exited(400, exit_code=143))),
        snapshot_of(
            JOINING,
            at_lock(300, *ENTERS),
            process(301, threads=[thread(301, "train.py:save", waits=WaitedOn("timer", "sleep"))]),
            TERMINATED,
        ),
    ],
)
def test_a_terminated_process_proves_nothing_where_the_lock_may_be_held_or_is_none(
    job: Snapshot,
) -> None:
    known = replace(job, segments=(lock(MAIN, 300, 301),))

    assert found(queue_lock_held_by_dead.check, known) == []


def test_a_semaphore_inside_of_a_condition_is_not_held() -> None:
    waiting = at_lock(300, "multiprocessing/synchronize.py:notify", "train.py:stop")

    assert found(queue_lock_held_by_dead.check, snapshot_of(main(), waiting, KILLED)) == []


def test_a_semaphore_above_zero_is_no_lock_that_is_held() -> None:
    job = snapshot_of(main(), at_lock(300, value=1), KILLED, segments=(lock(300),))

    assert found(queue_lock_held_by_dead.check, job) == []


def test_a_semaphore_is_a_lock_only_where_a_stack_of_this_wait_shows_it() -> None:
    def stuck(for_s: float, **seen: Any) -> list[Finding]:
        waits = at_lock(300).threads[0]
        worker = replace(at_lock(300), threads=(replace(waits, still_s=for_s, **seen),))
        job = snapshot_of(main(), worker, KILLED, segments=(lock(300),))
        return found(queue_lock_held_by_dead.check, job)

    assert stuck(8.0)
    assert not stuck(4.0)
    assert not stuck(14.0, stack=())
    assert not stuck(8.0, stack_age_s=19.0)


def acquires(text: str) -> Snapshot:
    """Main waits in a call of acquire() of its program, and a child was killed."""
    wait = WaitedOn("semaphore", "futex", ("sem 9:77",), segment=LOCK, value=0)
    own = main(threads=[thread(MAIN, "train.py:main:79", waits=wait)])
    line = SourceLine("/home/me/train.py", 79, "main", Statement(79, text))
    job = snapshot_of(own, KILLED, segments=(lock(MAIN),))
    return replace(job, source=(line,))


@pytest.mark.parametrize(
    "job",
    [
        acquires("slots.acquire()"),
        snapshot_of(
            main(),
            at_lock(300, "multiprocessing/queues.py:put", "train.py:read:18"),
            KILLED,
            segments=(lock(300),),
        ),
    ],
)
def test_what_counts_is_no_lock_that_a_killed_process_held(job: Snapshot) -> None:
    """The bound of a full queue, and a semaphore that others release, are at zero without that."""
    assert found(queue_lock_held_by_dead.check, job) == []


def test_what_is_named_a_lock_is_one_also_in_a_call_of_acquire() -> None:
    finding = only(queue_lock_held_by_dead.check, acquires("self._lock.acquire()"))

    assert "main (100) waits for a lock that a killed process still held" in finding.summary


def test_a_killed_process_held_no_lock_that_a_living_one_may_be_inside_of() -> None:
    sleeps = process(
        301, "spawned", threads=[thread(301, "train.py:save", waits=WaitedOn("timer", "sleep"))]
    )
    job = snapshot_of(main(), at_lock(300, *ENTERS), sleeps, KILLED, segments=(lock(300, 301),))

    assert found(queue_lock_held_by_dead.check, job) == []


IN_GET = ("multiprocessing/queues.py:get", "train.py:f")
PUTS = process(
    302,
    "spawned",
    segments=(),
    threads=[
        thread(
            302,
            "multiprocessing/queues.py:put",
            "train.py:push:16",
            waits=WaitedOn("semaphore", "futex", ("sem 9:79",), segment=SegmentId(9, 79), value=0),
        )
    ],
)
COLLECTS = process(
    303,
    "spawned",
    segments=(),
    threads=[
        thread(
            303,
            "multiprocessing/queues.py:get",
            "train.py:monitor:40",
            waits=WaitedOn("pipe-read", "read", ("pipe:[7]",)),
        )
    ],
)
SLEEPS = main(
    segments=(),
    threads=[
        thread(MAIN, "train.py:guard:24", waits=WaitedOn("timer", "nanosleep")),
        thread(109, name=HOOK_THREAD, waits=WaitedOn("poll", "poll", timeout_s=1.0)),
    ],
)


def renewed(
    others: tuple[Process, ...] = (PUTS, COLLECTS), still_s: float = 2.0, **more: Any
) -> Snapshot:
    """A parent renews the readers of a queue by terminate(): the first was in get(), the next one
    waited for the lock until its end, and the third one waits now."""
    first = replace(TERMINATED, threads=(thread(400, *IN_GET),))
    last = replace(
        at_lock(401, *IN_LOCK, segments=()), ended=exited(401, at_s=NOW_S - still_s - 1, signal=15)
    )
    last = replace(last, threads=(replace(last.threads[0], still_s=7.0, waits_s=7.0),))
    now = at_lock(300, *IN_LOCK, segments=())
    now = replace(now, threads=(replace(now.threads[0], still_s=still_s, waits_s=still_s, **more),))
    users = (MAIN, 300, 302, 303)
    return snapshot_of(SLEEPS, now, *others, first, last, segments=(lock(*users),))


@pytest.mark.parametrize("more", [{}, {"stack": ()}])
def test_the_lock_of_a_queue_whose_readers_were_terminated_is_named(more: dict[str, Any]) -> None:
    """Processes that put, that read another queue, and a parent that sleeps hold no such lock; and
    those that wait are renewed before any of them has waited for long."""
    finding = only(queue_lock_held_by_dead.check, renewed(**more))

    assert finding.process == pid(MAIN)
    assert "waits for the lock of a queue that a terminated process still held" in finding.summary
    assert "terminate()" in finding.advice
    assert any("wait in their place" in each for each in finding.evidence)
    assert any("last seen at train.py:1 f" in each for each in finding.evidence)


def test_the_reader_that_had_the_lock_may_have_ended_before_it_was_seen() -> None:
    job = renewed()
    known = [each for each in job.processes if each.process != pid(400)]

    finding = only(queue_lock_held_by_dead.check, replace(job, processes=tuple(known)))

    assert any(
        "one that ended before mpwatch observed the job had it" in each for each in finding.evidence
    )


@pytest.mark.parametrize(
    "job",
    [
        renewed(others=(process(302, threads=[thread(302, *IN_GET)], segments=()),)),
        renewed(others=(process(302, threads=[thread(302, state="R")], segments=()),)),
        renewed(others=(process(302, threads=[thread(302)], segments=()),)),
        renewed(still_s=0.5),
    ],
)
def test_the_lock_of_a_queue_may_be_held_by_a_reader_that_lives(job: Snapshot) -> None:
    assert found(queue_lock_held_by_dead.check, job) == []


NOTIFY = (
    "multiprocessing/synchronize.py:notify",
    "multiprocessing/synchronize.py:notify_all",
    "multiprocessing/synchronize.py:set",
    "train.py:stop:31",
)


def test_an_event_whose_waiter_was_killed_is_named() -> None:
    job = snapshot_of(main(threads=[thread(MAIN, *NOTIFY, still_s=STILL)]), KILLED)

    finding = only(event_set_hangs.check, job)

    assert "from train.py:31 stop" in finding.evidence[0]
    assert "SIGKILL" in finding.evidence[1]


def test_an_event_whose_waiter_was_terminated_is_named_with_the_line() -> None:
    """The one that waited on it when it was last seen, where several have ended."""
    job = snapshot_of(
        main(threads=[thread(MAIN, *NOTIFY, still_s=STILL)]),
        process(301, "spawned", ended=exited(301, signal=15), threads=[thread(301, "train.py:f")]),
        process(302, "spawned", ended=exited(302, signal=15), threads=[thread(302, *AT_BARRIER)]),
        log=(log("kill", MAIN, pid=302, signal=15, site="pool.py:49 shrink"),),
    )

    finding = only(event_set_hangs.check, job)

    assert "most likely a process was ended while it waited" in finding.summary
    assert "302 (302) ended" in finding.evidence[1]
    assert "(302) was ended by main (100) at pool.py:49 shrink, most likely while" in finding.cause
    assert "(301)" not in finding.cause


def test_where_no_end_was_seen_the_line_that_terminates_is_most_likely_the_cause() -> None:
    mark = Mark("terminates", "/a/pool.py", "shrink", "proc", Statement(49, "proc.terminate()"))
    job = snapshot_of(main(threads=[thread(MAIN, *NOTIFY, still_s=STILL)]), marks=(mark,))

    finding = only(event_set_hangs.check, job)

    assert "does not respond" in finding.summary
    assert "Most likely `proc.terminate()` at pool.py:49 shrink has ended one" in finding.cause
    assert "flag or message" in finding.advice


@pytest.mark.parametrize(
    "own",
    [
        thread(MAIN, *NOTIFY, still_s=1.0),
        thread(MAIN, *NOTIFY, state="R"),
        thread(MAIN, "multiprocessing/synchronize.py:wait", still_s=STILL),
    ],
)
def test_an_event_being_set_or_waited_for_is_ordinary(own: Thread) -> None:
    assert found(event_set_hangs.check, snapshot_of(main(threads=[own]), KILLED)) == []


AT_BARRIER = (
    "multiprocessing/synchronize.py:wait",
    "multiprocessing/synchronize.py:wait_for",
    "threading.py:_wait",
    "threading.py:wait",
    "train.py:epoch:12",
)


def at_barrier(number: int, still_s: float = STILL) -> Process:
    return process(number, "spawned", threads=[thread(number, *AT_BARRIER, still_s=still_s)])


def test_a_barrier_that_a_killed_process_did_not_reach_is_named() -> None:
    job = snapshot_of(main(), at_barrier(300), at_barrier(301), FAILED)

    finding = only(event_set_hangs.check, job)

    assert finding.severity is Severity.CRITICAL
    assert "at a barrier for spawned 400 (400), which exited" in finding.summary
    assert "at train.py:12 epoch" in finding.evidence[0]


def test_a_barrier_that_an_exited_process_did_not_reach_is_a_warning() -> None:
    left = process(400, "spawned", ended=exited(400, exit_code=0))

    assert only(event_set_hangs.check, snapshot_of(main(), at_barrier(300), left)).severity is (
        Severity.WARNING
    )


@pytest.mark.parametrize(
    "others",
    [
        (),
        (process(301, "spawned", threads=[thread(301, "train.py:step")]), FAILED),
        (replace(FAILED, process=ProcessId(400, 1)),),
    ],
    ids=["nobody is gone", "one may still come", "the one gone belonged to another phase"],
)
def test_a_barrier_that_may_still_open_is_quiet(others: tuple[Process, ...]) -> None:
    assert found(event_set_hangs.check, snapshot_of(main(), at_barrier(300), *others)) == []


def test_a_barrier_just_reached_is_quiet() -> None:
    assert found(event_set_hangs.check, snapshot_of(main(), at_barrier(300, 1.0), FAILED)) == []
