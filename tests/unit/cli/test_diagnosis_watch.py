"""How long `mpwatch diagnose` watches a job, on one machine or on several."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.cli.diagnosis_watch import (
    ANSWER_S,
    FIRST_FOR_S,
    LEAST_S,
    LONGEST_S,
    RECORDERS_S,
    SETTLED_S,
    STANDS_LIMIT_S,
    TREND_LIMIT_S,
    DiagnosisWatch,
    JobDiagnosisWatch,
    stalled_words,
)
from mpwatch.diagnose.engine import Engine
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Hook, Snapshot, Trends
from mpwatch.nodes.head.node import NodeView
from tests.builders.snapshots import MAIN, MIB, fds, main, pipe, process, snapshot_of, thread
from tests.unit.nodes.across.test_across import node, row

READS = WaitedOn("pipe-read", "read", ("pipe:[500]",))
SLEEPS = WaitedOn("timer", "clock_nanosleep", timeout_s=500.0)
JOINS = WaitedOn("child", "wait4", ("pid 300",))


def job(waits: WaitedOn, *, worker_state: str = "S", still_s: float = 4.0) -> Snapshot:
    """Main waits for a child that sleeps or computes."""
    waiting = main(
        fds=fds(5, links=[pipe(3, 500, False)]),
        segments=(),
        threads=[thread(MAIN, "train.py:main", waits=waits, still_s=still_s)],
    )
    child = thread(
        300,
        "train.py:work",
        state=worker_state,
        waits=SLEEPS if worker_state == "S" else None,
        still_s=still_s if worker_state == "S" else 0.0,
    )
    worker = process(
        300, "spawned", fds=fds(5, links=[pipe(4, 500, True)]), segments=(), threads=[child]
    )
    return Engine().diagnosed(snapshot_of(waiting, worker), History())


class Watched:
    """A watch with a clock that the test sets."""

    def __init__(self, seconds: float | None = None, spent_s: float = 0.0) -> None:
        self.now_s = 0.0
        self.shown: list[str] = []
        self.watch = DiagnosisWatch(seconds, self.shown.append, lambda: self.now_s, spent_s=spent_s)

    def is_enough(self, snapshot: Snapshot, at_s: float) -> bool:
        self.now_s = at_s
        self.watch.has_read(snapshot)
        return self.watch.is_enough()


def test_a_job_without_a_finding_is_watched_for_the_longest_time() -> None:
    watched, working = Watched(), job(READS, worker_state="R")

    assert not watched.is_enough(working, LONGEST_S - 1)
    assert watched.watch.limit_s == LONGEST_S
    assert watched.shown[-1] == ("2 processes, no finding yet; watching up to 35 s, ctrl-c to stop")


def test_a_warning_does_not_end_the_watch() -> None:
    watched, told = Watched(), Finding("cpu-oversubscription", Severity.WARNING, "s", (), "c", "a")

    assert not watched.is_enough(replace(job(READS, still_s=1.0), findings=(told,)), LEAST_S + 1)
    assert watched.shown[-1].startswith("2 processes, 1 finding so far; ")


def test_the_user_sees_which_process_makes_no_progress() -> None:
    watched = Watched()

    assert not watched.is_enough(job(READS), LEAST_S + 1)
    assert watched.shown[-1] == (
        "main has made no progress for 4.0 s; watching up to 35 s, ctrl-c to stop"
    )


def test_the_watch_ends_soon_after_the_first_critical_finding() -> None:
    told = Finding("standing-still", Severity.CRITICAL, "s", ("e",), "c", "a")

    critical, watched = replace(job(READS), findings=(told,)), Watched()

    assert not watched.is_enough(critical, 9.0)
    assert not watched.is_enough(critical, 8.0 + LEAST_S)
    assert watched.is_enough(critical, 9.0 + LEAST_S)


def stuck_rank(still_s: float = 6.0, **gauges: Any) -> Snapshot:
    """A rank in a critical finding whose hook answers."""
    at = thread(MAIN, "train.py:step", waits=READS, still_s=still_s)
    told = Finding("standing-still", Severity.CRITICAL, "s", ("e",), "c", "a")
    rank = process(MAIN, "rank", threads=[at])
    rank = replace(rank, hook=Hook("ready"), gauges=gauges)
    return replace(snapshot_of(rank), findings=(told,))


def test_the_answer_about_a_stuck_rank_comes_once_its_recorder_was_read() -> None:
    due, read, moves = Watched(), Watched(), Watched()
    known = stuck_rank(collectives={"states": [], "groups": {}})

    for each, snapshot in ((due, stuck_rank()), (read, known), (moves, stuck_rank(0.5))):
        assert not each.is_enough(snapshot, 9.0)
    assert not due.is_enough(stuck_rank(), 9.0 + LEAST_S)
    assert read.is_enough(known, 9.0 + LEAST_S)
    assert moves.is_enough(stuck_rank(0.5), 9.0 + LEAST_S)
    assert due.is_enough(known, 11.0 + LEAST_S)


def test_an_answer_does_not_wait_forever_for_a_recorder() -> None:
    watched = Watched()

    assert not watched.is_enough(stuck_rank(), 0.0)
    assert not watched.is_enough(stuck_rank(), LEAST_S + RECORDERS_S - 1)
    assert watched.is_enough(stuck_rank(), LEAST_S + RECORDERS_S)


def test_the_watch_continues_where_a_critical_finding_did_not_last() -> None:
    told = Finding("standing-still", Severity.CRITICAL, "s", ("e",), "c", "a")
    critical, watched = replace(job(READS), findings=(told,)), Watched()

    assert not watched.is_enough(critical, 1.0)
    assert not watched.is_enough(job(READS), 2.0)
    assert not watched.is_enough(critical, 2.0 + LEAST_S)


def test_a_warning_why_ranks_are_blocked_is_watched_until_its_severity_is_final() -> None:
    told = Finding("rank-stuck-in-collective", Severity.WARNING, "s", ("e",), "c", "a")
    standing, watched = replace(job(READS), findings=(told,)), Watched()

    assert not watched.is_enough(standing, 9.0)
    assert not watched.is_enough(standing, LONGEST_S + 1)
    assert watched.watch.longest_s == STANDS_LIMIT_S
    critical = replace(told, severity=Severity.CRITICAL)
    assert not watched.is_enough(replace(job(READS), findings=(critical,)), 61.0)
    assert watched.is_enough(replace(job(READS), findings=(critical,)), 61.0 + LEAST_S)


def test_such_a_warning_about_a_job_that_makes_progress_does_not_prolong_the_watch() -> None:
    told = Finding("rank-stuck-in-collective", Severity.WARNING, "s", ("e",), "c", "a")
    working, watched = replace(job(READS, still_s=1.0), findings=(told,)), Watched()

    assert not watched.is_enough(working, 9.0)
    assert watched.is_enough(working, LONGEST_S)


def test_a_time_that_the_user_gave_is_kept() -> None:
    watched = Watched(2.0)

    assert watched.watch.limit_s == 2.0
    assert not watched.is_enough(job(READS), 1.0)
    assert watched.shown == ["2 processes"]


def test_a_parent_that_joins_a_child_at_work_has_not_stopped() -> None:
    assert stalled_words(job(JOINS, worker_state="R")) is None
    assert stalled_words(job(JOINS)) is None
    assert stalled_words(job(READS, still_s=1.0)) is None


def growing(*private_mib: float, told: bool = False, eta_s: float | None = None) -> Snapshot:
    """A job whose main process had this private memory at its readings."""
    trends = Trends(private_bytes=[each * MIB for each in private_mib])
    told_as = Finding("steady-growth", Severity.INFO, "s", (), "c", "a", eta_s=eta_s)
    findings = (told_as,) if told else ()
    return replace(snapshot_of(main(more={"trends": trends})), findings=findings)


def test_a_resource_that_rises_is_watched_for_longer_than_a_job_of_which_nothing_does() -> None:
    rises, full = (10.0, 11.0, 12.0, 13.0, 14.0, 15.0), (10.0, 14.0, 15.0, 15.0, 15.0, 15.0)

    longer, done, told = Watched(), Watched(), Watched()

    assert not longer.is_enough(growing(*rises), LONGEST_S + 1)
    assert longer.shown[-1].startswith("main uses ever more private memory; watching up to 60 s")
    assert longer.is_enough(growing(*rises), TREND_LIMIT_S + 1)
    assert done.is_enough(growing(*full), LONGEST_S + 1)
    assert told.is_enough(growing(*rises, told=True), LONGEST_S + 1)
    assert told.is_enough(growing(*rises, told=True, eta_s=7200.0), LONGEST_S + 1)
    assert not Watched().is_enough(growing(*rises, told=True, eta_s=400.0), LONGEST_S + 1)


def rising() -> Snapshot:
    """A job whose private memory rises, and of which no finding tells."""
    working = job(READS, worker_state="R")
    root = replace(
        working.processes[0], trends=Trends(private_bytes=tuple(n * 5 * MIB for n in range(40)))
    )
    return replace(working, processes=(root, *working.processes[1:]), findings=())


def test_on_a_slow_machine_the_watch_is_shorter_so_that_the_answer_comes_in_time() -> None:
    usual, slow = Watched(), Watched(spent_s=22.0)
    for each in (usual, slow):
        assert not any(each.is_enough(rising(), float(second)) for second in range(0, 35, 2))

    assert not usual.is_enough(rising(), TREND_LIMIT_S - 1)
    assert slow.is_enough(rising(), 44.0)
    assert slow.watch.limit_s + 2 * 22.0 <= ANSWER_S


def test_however_slow_a_machine_is_a_job_is_watched_for_the_least_time() -> None:
    slow, working = Watched(spent_s=80.0), job(READS, worker_state="R")

    assert not slow.is_enough(working, LEAST_S - 1)
    assert slow.is_enough(working, LEAST_S)


def test_a_time_given_by_the_user_is_kept_on_a_slow_machine() -> None:
    slow = Watched(70.0, spent_s=80.0)

    assert not slow.is_enough(job(READS, worker_state="R"), 60.0)
    assert slow.watch.limit_s == 70.0


SLOW = Finding("pipeline-bottleneck", Severity.INFO, "s", ("e",), "c", "a")


@pytest.mark.parametrize(
    ("findings", "is_enough"),
    [
        ((SLOW,), True),
        ((replace(SLOW, is_doubtful=True),), False),
        ((replace(SLOW, rule="orphaned-workers"),), False),
        ((replace(SLOW, rule="steady-growth"), SLOW), False),
    ],
)
def test_a_job_of_which_it_is_known_why_it_is_slow_is_watched_for_a_shorter_time(
    findings: tuple[Finding, ...], is_enough: bool
) -> None:
    watched, working = Watched(), replace(job(READS, worker_state="R"), findings=findings)

    assert not watched.is_enough(working, 6.0)
    assert not watched.is_enough(working, SETTLED_S - 1)
    assert watched.is_enough(working, SETTLED_S + 1) is is_enough
    assert watched.is_enough(working, LONGEST_S + 1)


def test_it_is_watched_for_longer_where_that_was_found_late_or_something_stalls_or_rises() -> None:
    working = replace(job(READS, worker_state="R"), findings=(SLOW,))
    late, stalls, rises = Watched(), Watched(), Watched()

    assert not late.is_enough(job(READS, worker_state="R"), SETTLED_S - 4)
    assert not late.is_enough(working, SETTLED_S - 3)
    assert not late.is_enough(working, SETTLED_S - 4 + FIRST_FOR_S)
    assert late.is_enough(working, SETTLED_S - 3 + FIRST_FOR_S)

    stalled = replace(job(READS), findings=(SLOW,))
    assert not stalls.is_enough(stalled, 5.0)
    assert not stalls.is_enough(stalled, SETTLED_S + 1)

    assert not rises.is_enough(replace(rising(), findings=(SLOW,)), 5.0)
    assert not rises.is_enough(replace(rising(), findings=(SLOW,)), SETTLED_S + 1)


# --- several machines ----------------------------------------------------------------------------


class WatchedJob:
    """A watch of a job all of whose nodes have been read; `job` is what they have sent."""

    is_settled = True
    is_over = False

    def __init__(self, *nodes: NodeView, seconds: float | None = None) -> None:
        self.nodes = nodes
        self.watch = JobDiagnosisWatch(seconds)
        self.watch.is_enough(self, 0.0)

    def views(self) -> tuple[NodeView, ...]:
        return self.nodes

    def is_enough(self, at_s: float) -> bool:
        return self.watch.is_enough(self, at_s)


def ranks_apart(**more: Any) -> tuple[NodeView, ...]:
    """Ranks that wait in two collectives, one of them with more fields."""
    rows = [row(0), row(1, place="barrier", **more), row(2), row(3)]
    return node("a", *rows[:2]), node("b", *rows[2:])


def test_an_answer_about_ranks_in_collectives_comes_once_their_recorders_were_read() -> None:
    read, due = WatchedJob(*ranks_apart()), WatchedJob(*ranks_apart(is_recorder_due=True))

    assert not read.is_enough(LEAST_S - 1)
    assert read.is_enough(LEAST_S + 1)
    assert not due.is_enough(LEAST_S + 1)
    due.nodes = ranks_apart()
    assert due.is_enough(LEAST_S + 3)


def test_an_answer_does_not_wait_for_a_recorder_that_is_not_read_or_a_rank_that_moves() -> None:
    due = WatchedJob(*ranks_apart(is_recorder_due=True))
    moves = WatchedJob(
        node("a", row(0), row(1)),
        node("b", row(2), row(3, place=None, line="x.py:1 f")),
        node("c", row(0, job="another", quiet_s=None, is_recorder_due=True)),
    )

    assert not due.is_enough(LEAST_S + 1)
    assert not due.is_enough(LEAST_S + RECORDERS_S - 1)
    assert due.is_enough(LEAST_S + RECORDERS_S + 2)
    assert moves.is_enough(LEAST_S + 1)
