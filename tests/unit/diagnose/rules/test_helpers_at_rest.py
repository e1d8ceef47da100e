from __future__ import annotations

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import fork_openmp, standing_still
from mpwatch.model.findings import Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Snapshot
from tests.builders.snapshots import (
    IDLE_FEEDER,
    MAIN,
    fds,
    found,
    main,
    only,
    process,
    snapshot_of,
    socket,
    thread,
    with_threads,
)
from tests.unit.diagnose.rules.test_hangs import NATIVE_LOCK, alone, futex, named
from tests.unit.diagnose.rules.test_stuck_loaders import POLL

HOOKS = thread(301, name="mpwatch-hook", waits=POLL)
FEEDER = thread(302, *IDLE_FEEDER, waits=futex())
SHARER = thread(303, "multiprocessing/resource_sharer.py:_serve")


def test_idle_helper_threads_do_not_hide_a_blocked_forked_child() -> None:
    lonely = alone(wait=futex(NATIVE_LOCK))
    helped = with_threads(lonely, (*lonely.threads, HOOKS, FEEDER, SHARER))
    job = snapshot_of(main(), helped)

    assert named(job) == ["fork-openmp"]
    assert "has one thread beside 3 idle ones" in only(fork_openmp.check, job).evidence[0]
    assert wait_graph(Index(job)).chains[0].verdict == "dead-end"


def test_a_feeder_that_sends_may_end_a_wait() -> None:
    lonely = alone(wait=futex(NATIVE_LOCK))
    sending = thread(302, "multiprocessing/connection.py:_send", "multiprocessing/queues.py:_feed")

    assert named(snapshot_of(main(), with_threads(lonely, (*lonely.threads, sending)))) == []


def senders(seconds: float) -> Snapshot:
    """Main and its child, both in the middle of sending to the other."""

    def sends(number: int) -> WaitedOn:
        return WaitedOn("socket-write", "write", (f"socket:[{number}]",))

    one = main(
        fds=fds(9, links=[socket(4, 71, 72)]),
        segments=(),
        threads=[thread(MAIN, waits=sends(71), still_s=seconds)],
    )
    other = process(
        300,
        "spawned",
        fds=fds(9, links=[socket(4, 72, 71)]),
        segments=(),
        threads=[thread(300, waits=sends(72), still_s=seconds)],
    )
    return snapshot_of(one, other)


def test_two_processes_that_both_send_are_named_sooner_than_others() -> None:
    assert only(standing_still.check, senders(9.0)).severity is Severity.CRITICAL
    assert found(standing_still.check, senders(6.0)) == []


def test_the_fix_for_two_processes_that_both_send_is_to_read() -> None:
    finding = only(standing_still.check, senders(9.0))

    assert "reads nothing until its send is complete" in finding.cause
    assert "receive before it sends" in finding.advice
