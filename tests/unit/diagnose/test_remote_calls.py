"""Calls of torch.distributed.rpc that wait in the threads that would have to answer them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.snapshots import fds, found, main, process, snapshot_of, thread

FUTEX = WaitedOn("futex", "futex")
ASKS = ("torch/distributed/rpc/api.py:rpc_sync", "torch/distributed/rpc/api.py:wrapper")
RUN_FOR_OTHERS = "torch/distributed/rpc/internal.py:_run_function"
NESTED = (*ASKS, "data.py:tune:51", "data.py:push:73", RUN_FOR_OTHERS)
SHUTS_DOWN = ("threading.py:wait", "torch/distributed/rpc/api.py:shutdown", "train.py:run:60")


def pool_thread(tid: int, *stack: str, busy: bool = False, waits: WaitedOn = FUTEX) -> Thread:
    if busy:
        return thread(tid, *stack, name="pt_thread_pool", state="R", still_s=0.0)
    return thread(tid, *stack, name="pt_thread_pool", waits=waits, still_s=40.0)


def rank(number: int, *stack: str, still_s: float = 40.0, pool: tuple[Thread, ...] = ()) -> Process:
    """A rank with a thread of native code that always runs, as TensorPipe has one."""
    own = thread(number, *stack, waits=FUTEX, still_s=still_s)
    reactor = thread(number + 90, name="TP_SHM_reactor", state="R", still_s=0.0)
    return process(
        number,
        "rank",
        label=f"rank {number // 100 - 2}",
        fds=fds(3, links=()),
        segments=(),
        threads=[own, *pool, reactor],
    )


def job(
    *handlers: Thread,
    still_s: float = 40.0,
    elsewhere: Thread | None = None,
    marks: tuple[Mark, ...] = (),
    source: tuple[SourceLine, ...] = (),
) -> Snapshot:
    """A server, and a trainer that waits for it and has an idle thread for calls."""
    idle = pool_thread(301) if elsewhere is None else elsewhere
    asks = rank(300, *ASKS, "train.py:train:41", still_s=still_s, pool=(idle,))
    server = rank(200, *SHUTS_DOWN, pool=handlers)
    own = main(threads=[thread(100, "train.py:main:5", waits=FUTEX, still_s=90.0)], segments=())
    return snapshot_of(own, server, asks, marks=marks, source=source)


def told(snapshot: Snapshot) -> list[Finding]:
    return [each for each in found(no_progress.check, snapshot) if each.subject == "rpc"]


def test_a_call_that_waits_for_another_one_in_the_only_thread_for_answers_is_named() -> None:
    threads = Statement(51, "num_worker_threads=threads,")
    size = Mark("rpc-threads", "/home/me/train.py", "run", "threads", threads)

    finding = told(job(pool_thread(201, *NESTED), marks=(size,)))[0]

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "rank 0 (200) has waited 40 s for the answer to a remote call at data.py:51 tune: it runs "
        "push() for another process in its only thread for remote calls, so that none is left to "
        "receive the answer; rank 1 (300) waits for it"
    )
    assert "rank 1 (300) waits at train.py:41 train" in finding.evidence
    assert "none is free, so this one never arrives" in finding.cause
    assert "`num_worker_threads=threads,` at train.py:51 run" in finding.cause
    assert "send what push() asks for with its own call" in finding.advice


def test_all_threads_of_the_pool_may_wait_for_further_calls() -> None:
    two = job(pool_thread(201, *NESTED), pool_thread(202, *NESTED))

    assert "all of its 2 threads for remote calls wait like this" in told(two)[0].summary


HERE = SourceLine("/home/me/data.py", 51, "tune", Statement(51, "x = ref.to_here()"))


def test_the_value_of_a_remote_reference_is_a_further_call() -> None:
    waits = pool_thread(201, "data.py:tune:51", "data.py:push:73", RUN_FOR_OTHERS)

    assert "in its only thread" in told(job(waits, source=(HERE,)))[0].summary
    assert "in its only thread" not in told(job(waits))[0].summary


@pytest.mark.parametrize(
    "snapshot",
    [
        job(pool_thread(201, *NESTED), still_s=5.0),
        job(pool_thread(201, *NESTED), elsewhere=pool_thread(301, busy=True)),
        job(
            pool_thread(201, *NESTED),
            elsewhere=pool_thread(
                301, "data.py:losses:9", RUN_FOR_OTHERS, waits=WaitedOn("timer", "clock_nanosleep")
            ),
        ),
        job(pool_thread(201, "data.py:push:73", RUN_FOR_OTHERS, busy=True)),
    ],
    ids=["young", "the other one works on it", "the other one sleeps in it", "a call at work"],
)
def test_calls_that_are_worked_on_or_young_are_not_reported(snapshot: Snapshot) -> None:
    assert told(snapshot) == []


def test_with_a_free_thread_only_the_wait_is_information() -> None:
    finding = told(job(pool_thread(201, *NESTED), pool_thread(202)))[0]

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        "rank 1 (300) has waited 40 s for the answer to a remote call at train.py:41 train, and "
        "rank 0 (200) waits in one at data.py:51 tune"
    )
    assert "has to return from push()" in finding.cause


def test_calls_that_no_process_runs_are_not_counted() -> None:
    finding = told(job(pool_thread(201)))[0]

    assert finding.summary.endswith("and no process works on one")
    assert finding.evidence == ("rank 1 (300) waits at train.py:41 train",)


def test_a_call_that_another_process_holds_up_is_only_information() -> None:
    event = pool_thread(301, "threading.py:wait", "data.py:losses:9", RUN_FOR_OTHERS)

    finding = told(job(pool_thread(201, *NESTED), elsewhere=event))[0]

    assert finding.severity is Severity.INFO


def test_another_rank_that_computes_may_call_what_the_others_wait_for() -> None:
    waits = job(pool_thread(201, "threading.py:wait", "data.py:push:73", RUN_FOR_OTHERS))
    busy = rank(400, "train.py:train:44", pool=(pool_thread(401),))
    at_work = replace(busy.threads[0], state="R", waits_on=None, still_s=0.0)
    third = replace(busy, threads=(at_work, *busy.threads[1:]))

    assert told(waits)
    assert told(replace(waits, processes=(*waits.processes, third))) == []


def test_a_call_that_no_process_of_the_job_has_is_information() -> None:
    finding = told(job(pool_thread(201)))[0]

    assert finding.severity is Severity.INFO
    assert finding.summary.endswith("at train.py:41 train, and no process works on one")


def test_a_job_in_which_no_process_serves_calls_is_not_judged() -> None:
    asks = rank(300, *ASKS, "train.py:train:41", pool=(pool_thread(301),))

    assert told(snapshot_of(main(threads=[thread(100, waits=FUTEX)], segments=()), asks)) == []
