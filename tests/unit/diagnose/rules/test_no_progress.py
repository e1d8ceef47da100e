"""A process that makes no progress is named with those that wait for it; idle ones are not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.blockages import stalled_s
from mpwatch.diagnose.rules.exits import worker_exited_unexpectedly
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.account import (
    NO_CORE,
    Account,
    Activity,
    Bucket,
    Callers,
    ProcessAccount,
    Tally,
    ThreadAccount,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, Point
from mpwatch.model.ids import ProcessId, SegmentId
from mpwatch.model.samples import (
    FdLink,
    Frame,
    FrameValues,
    HeldLock,
    LockHolder,
    NameValue,
    ValuesRead,
    WaitedOn,
)
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import Decider, EndlessLoop, Mark, Skip, SourceLine, Statement
from tests.builders.accounts import with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    WALL_S,
    exited,
    fds,
    found,
    history,
    line,
    log,
    main,
    only,
    pid,
    pipe,
    process,
    snapshot_of,
    socket,
    thread,
    uses,
)

CHILD = 300
READS = WaitedOn("pipe-read", "read", ("pipe:[500]",))
SLEEPS = WaitedOn("timer", "clock_nanosleep", timeout_s=500.0)
JOINS = WaitedOn("child", "wait4", (f"pid {CHILD}",))
RECEIVES = WaitedOn("socket-read", "recvfrom", ("socket:[77]",), (7,))
OUTSIDE = "tcp 10.0.0.1:40000 > 10.0.0.2:80"


def waiting(still_s: float, waits: WaitedOn = READS, *stack: str) -> Process:
    """Main, which waits for what its child writes."""
    return main(
        fds=fds(5, links=[pipe(3, 500, False)]),
        segments=(),
        threads=[thread(MAIN, *(stack or ("train.py:main:7",)), waits=waits, still_s=still_s)],
    )


def child(
    waits: WaitedOn | None = SLEEPS,
    *stack: str,
    state: str = "S",
    still_s: float = 200.0,
    links: tuple[FdLink, ...] = (),
    **more: Any,
) -> Process:
    """A child that holds the writing end of the pipe."""
    at = thread(CHILD, *(stack or ("train.py:work:9",)), waits=waits, state=state, still_s=still_s)
    return process(
        CHILD,
        "spawned",
        label="spawned",
        fds=fds(5, links=[pipe(4, 500, True), *links]),
        segments=(),
        threads=[at],
        **more,
    )


def sleeping(still_s: float) -> Snapshot:
    return snapshot_of(waiting(still_s), child(still_s=still_s))


def test_a_process_that_sleeps_while_main_waits_is_named_with_its_line() -> None:
    finding = only(no_progress.check, sleeping(12.0))

    assert finding.summary == (
        "main (100) has waited 12 s for spawned (300), which sleeps at train.py:9 work"
    )
    assert "will wake up by itself in 8 min" in finding.cause
    assert "main (100) is at train.py:7 main" in finding.evidence


def test_severity_follows_the_time_that_is_lost() -> None:
    assert found(no_progress.check, sleeping(9.0)) == []
    severities = [only(no_progress.check, sleeping(at)).severity for at in (12.0, 31.0, 121.0)]
    assert severities == [Severity.INFO, Severity.WARNING, Severity.CRITICAL]


def test_a_pause_as_long_as_usual_is_quiet() -> None:
    paused = [Point(NOW_S - 74 + n, 50.0 if n in (1, 40) else 0.0) for n in range(75)]
    usual = history({(MAIN, "cpu_percent"): paused})

    assert found(no_progress.check, sleeping(34.0), usual) == []


def unread(waited_s: float, fd: int, **reader: Any) -> Snapshot:
    """A child that writes to a full pipe, of which main has the reading end."""
    own = main(
        fds=fds(5, links=[pipe(3, 500, False)]),
        segments=(),
        threads=[thread(MAIN, "train.py:main:7", waits=SLEEPS, **{"still_s": waited_s, **reader})],
    )
    writes = WaitedOn("pipe-write", "write", ("pipe:[500]",), (fd,))
    output = pipe(fd, 500, True)
    return snapshot_of(own, child(waits=writes, still_s=waited_s, links=(output,)))


def test_unread_output_is_named_as_the_cause() -> None:
    finding = only(no_progress.check, unread(40.0, 1))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "spawned (300) has waited 40 s to write to its standard output, pipe 500: main (100), "
        "which could read it, sleeps at train.py:7 main"
    )
    assert finding.cause.startswith("pipe 500 is full, and main (100), which has its reading end")
    assert "wake up" not in finding.cause
    assert "in a thread of its own" in finding.advice


def test_a_producer_ahead_of_its_consumer_is_no_warning() -> None:
    sleeps = found(no_progress.check, unread(400.0, 7))
    computes = found(no_progress.check, unread(400.0, 1, state="R", cpu_percent=100.0, still_s=0.0))

    assert {each.severity for each in (*sleeps, *computes)} <= {Severity.INFO}
    assert not any("is full" in each.cause for each in computes)


def test_a_parent_that_joins_a_child_waits_by_design() -> None:
    assert found(no_progress.check, snapshot_of(waiting(200.0, JOINS), child())) == []


def test_at_its_exit_a_parent_does_not_join_by_design() -> None:
    leaving = waiting(200.0, JOINS, "process.py:join", "util.py:_exit_function")

    assert "which sleeps" in only(no_progress.check, snapshot_of(leaving, child())).summary


def test_a_process_that_computes_is_information_at_most() -> None:
    busy = child(None, state="R", still_s=0.0)

    assert found(no_progress.check, snapshot_of(waiting(20.0), busy)) == []
    finding = only(no_progress.check, snapshot_of(waiting(500.0), busy))
    assert finding.severity is Severity.INFO
    assert "which computes at train.py:9 work" in finding.summary


@pytest.mark.parametrize(
    ("text", "mark", "is_told"),
    [
        ("text = pattern.sub(to, text)", ("uses-wide-pattern", "4, (?:a|b|ab)*c", 9), True),
        (
            "text = pattern.sub(to, text)",
            ("uses-wide-pattern", "rules.py:4, (?:a|b|ab)*c", 9),
            True,
        ),
        ("text = pattern.sub(to, text)", ("uses-wide-pattern", "4, (?:a|b|ab)*c", 12), False),
        ("text = PAIRS.sub('', text)", ("wide-pattern", "(?:a|b|ab)*c", 4), True),
        ("text = OTHER.sub('', text)", ("wide-pattern", "(?:a|b|ab)*c", 4), False),
        ("text = text.lower()", ("wide-pattern", "(?:a|b|ab)*c", 4), False),
        ("text = listed.sub('', text)", ("wide-pattern", "(?:a|b|ab)*c", 4), False),
    ],
)
def test_one_that_computes_at_an_ambiguous_pattern_is_said_to_match_it(
    text: str, mark: tuple[Any, str, int], is_told: bool
) -> None:
    kind, about, at = mark
    where = "work" if kind == "uses-wide-pattern" else "<module>"
    shown = 'PAIRS = re.compile("(?:a|b|ab)*c")'
    if kind == "uses-wide-pattern":
        shown = text
    elif "listed" in text:
        shown = '(re.compile("(?:a|b|ab)*c"), ""),'
    file = own_file("work")
    job = snapshot_of(
        waiting(500.0),
        child(None, state="R", still_s=0.0),
        source=(SourceLine(file, 9, "work", Statement(9, text)),),
        marks=(Mark(kind, file, where, about, Statement(at, shown)),),
    )

    finding = only(no_progress.check, job)

    place = "rules.py:4" if about.startswith("rules.py") else "line 4"
    wide = f"the regular expression (?:a|b|ab)*c of {place} can match the same text in many ways"
    assert finding.summary.endswith(wide) is is_told
    assert ("a text begins like a match" in finding.cause) is is_told
    assert ("longer timeout do not help" in finding.advice) is is_told


@pytest.mark.parametrize(
    ("stack", "is_told"),
    [
        (("re.py:sub:210", "train.py:work:9"), True),
        (("re/__init__.py:sub:185", "train.py:work:9"), True),
        (("json/decoder.py:raw_decode:353", "train.py:work:9"), False),
        (("re/__init__.py:sub:185", "textwrap.py:wrap:3", "train.py:work:9"), False),
    ],
)
def test_only_the_line_itself_or_re_matches_the_pattern_of_a_line(
    stack: tuple[str, ...], is_told: bool
) -> None:
    file, text = own_file("work"), "rows = PAIRS.sub('', json.loads(line)['text'])"
    shown = Statement(4, 'PAIRS = re.compile("(?:a|b|ab)*c")')
    job = snapshot_of(
        waiting(500.0),
        child(None, *stack, state="R", still_s=0.0),
        source=(SourceLine(file, 9, "work", Statement(9, text)),),
        marks=(Mark("wide-pattern", file, "<module>", "(?:a|b|ab)*c", shown),),
    )

    finding = only(no_progress.check, job)

    assert ("many ways" in finding.summary) is is_told
    assert ("a text begins like a match" in finding.cause) is is_told


RUN_ENDS = (
    "selectors.py:select",
    "asyncio/base_events.py:_run_once",
    "asyncio/base_events.py:run_until_complete",
    "asyncio/runners.py:close",
    "asyncio/runners.py:run",
    "train.py:evaluate:23",
)
SHUTS_DOWN = ("threading.py:join", "concurrent/futures/thread.py:shutdown")
CALLED = ("concurrent/futures/thread.py:run", "concurrent/futures/thread.py:_worker")
OWN_WAKE_UP = WaitedOn("poll", "epoll_wait", ("socket:[78]",))


def in_executor(
    *stack: str, name: str = "asyncio_0", busy: bool = True, waits: WaitedOn | None = None
) -> Thread:
    """A thread of a pool, in a call or idle."""
    how = {"state": "R", "still_s": 0.0} if busy else {"waits": waits, "still_s": 200.0}
    return thread(302, *stack, *(CALLED if stack else CALLED[1:]), name=name, **how)


def joins_executor(*threads: Thread, by: str = "asyncio") -> Process:
    """The child, at the end of a thread pool."""
    futex = WaitedOn("futex", "futex")
    main_of = thread(CHILD, *RUN_ENDS, waits=OWN_WAKE_UP, still_s=200.0)
    joiner = thread(
        303,
        *SHUTS_DOWN,
        "asyncio/base_events.py:_do_shutdown",
        name="Thread-1 (_do_shutdown)",
        waits=futex,
        still_s=200.0,
    )
    own = [main_of, joiner]
    if by == "shutdown":
        end = (*SHUTS_DOWN, "concurrent/futures/_base.py:__exit__", "train.py:evaluate:23")
        own = [thread(CHILD, *end, waits=futex, still_s=200.0)]
    if by == "none":
        own = [main_of]
    if by == "result":
        asks = ("threading.py:wait", "concurrent/futures/_base.py:result", "train.py:score:19")
        own = [thread(CHILD, *asks, waits=futex, still_s=200.0)]
    return replace(child(), threads=(*own, *threads))


def of_executor(*threads: Thread, by: str = "asyncio", marks: tuple[Mark, ...] = ()) -> Finding:
    return only(
        no_progress.check,
        snapshot_of(waiting(500.0), joins_executor(*threads, by=by), marks=marks),
    )


def test_the_end_of_asyncio_run_names_the_thread_that_still_computes() -> None:
    given = Mark(
        "runs-in-thread",
        "/home/me/data.py",
        "stage",
        "work",
        Statement(39, "await asyncio.wait_for(loop.run_in_executor(None, work, item), limit)"),
    )
    other = given._replace(statement=Statement(50, "await asyncio.to_thread(load, item)"))

    finding = of_executor(in_executor("data.py:inner:8", "data.py:work:5"), marks=(other, given))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "main (100) has waited 8 min for spawned (300), which waits at train.py:23 evaluate at the "
        "end of asyncio.run for its thread asyncio_0, which computes at data.py:8 inner"
    )
    assert "itself computes nothing" in finding.cause
    assert "run_in_executor(None, work, item), limit)` at data.py:39 stage" in finding.cause
    assert "end only the wait for it, and the call goes on" in finding.cause
    assert "process of its own that is ended at its time limit" in finding.advice


def test_code_without_a_file_is_named_beside_the_line_that_runs_it() -> None:
    finding = of_executor(in_executor("<candidate-7>:search:5", "data.py:work:5"))

    assert finding.summary.endswith("computes at data.py:5 work (in <candidate-7>:5 search)")


def test_a_thread_at_the_end_of_asyncio_run_may_wait_itself() -> None:
    event = ("threading.py:wait", "data.py:work:5")
    waits = in_executor(*event, busy=False, waits=WaitedOn("futex", "futex"))

    finding = of_executor(waits)

    assert finding.summary.endswith(
        "asyncio_0, which waits for an event or condition at data.py:5 work"
    )


def test_of_several_statements_that_may_have_given_the_call_none_is_named() -> None:
    given = Mark(
        "runs-in-thread",
        "/home/me/data.py",
        "stage",
        "stage",
        Statement(39, "loop.run_in_executor(None, stage, item)"),
    )
    twice = (given, given._replace(statement=Statement(41, "loop.run_in_executor(None, run)")))
    computes = in_executor("data.py:work:5")

    assert "at data.py:39 stage" in of_executor(computes, marks=(given,)).cause
    assert "at data.py" not in of_executor(computes, marks=twice).cause.partition("still in")[0]
    assert "has given it" not in of_executor(computes, marks=twice).cause


def test_the_end_of_an_executor_names_the_thread_that_still_computes() -> None:
    computes = in_executor("data.py:work:5", name="load_0")
    idle = replace(in_executor(name="other_0", busy=False), tid=305)

    finding = of_executor(computes, idle, by="shutdown")

    assert finding.severity is Severity.INFO
    assert "at the end of a ThreadPoolExecutor for its thread load_0, which" in finding.summary


def test_the_result_of_a_call_names_the_thread_that_computes_it() -> None:
    computes = in_executor("data.py:simplify:34", name="score_0")
    idle = replace(in_executor(name="score_1", busy=False), tid=305)

    finding = of_executor(computes, idle, by="result")

    assert finding.summary.endswith(
        "spawned (300), which waits at train.py:19 score for the result of a call in a thread "
        "pool: its thread score_0 computes at data.py:34 simplify"
    )
    assert "itself computes nothing" in finding.cause
    assert "bound what it is given" in finding.advice
    assert "signal.alarm()" in finding.advice


@pytest.mark.parametrize(
    "other",
    [
        in_executor("data.py:work:5", name="load_1"),
        thread(305, "concurrent/futures/process.py:run", still_s=200.0),
    ],
    ids=["two that compute", "results of processes"],
)
def test_where_the_result_may_come_from_elsewhere_no_thread_is_named(other: Thread) -> None:
    computes = in_executor("data.py:simplify:34", name="score_0")

    assert "score_0" not in of_executor(computes, replace(other, tid=305), by="result").summary


@pytest.mark.parametrize(
    ("threads", "by"),
    [
        ((in_executor("data.py:work:5"),), "none"),
        ((in_executor("data.py:work:5", name="load_0"), in_executor(name="load_1")), "shutdown"),
    ],
    ids=["its loop goes on", "a pool that is not shut down"],
)
def test_a_loop_or_pool_that_is_at_no_end_is_not_said_to_be(
    threads: tuple[Thread, ...], by: str
) -> None:
    assert "at the end of" not in of_executor(*threads, by=by).summary


@pytest.mark.parametrize(
    ("still_s", "by", "is_told"),
    [(40.0, "asyncio", True), (20.0, "asyncio", False), (40.0, "shutdown", False)],
)
def test_a_process_alone_at_the_end_of_asyncio_run_is_reported_after_a_time(
    still_s: float, by: str, is_told: bool
) -> None:
    alone = joins_executor(in_executor("data.py:work:5"), by=by)
    first = replace(alone.threads[0], still_s=still_s, tid=MAIN)
    job = snapshot_of(main(threads=[first, *alone.threads[1:]], segments=()))

    told = [each.summary for each in found(no_progress.check, job)]

    words = (
        "main (100) has made no progress for 40 s: it waits at train.py:23 evaluate at the end of "
        "asyncio.run for its thread asyncio_0, which computes at data.py:5 work"
    )
    assert told == ([words] if is_told else [])


def own_file(function: str) -> str:
    """The file of the lines of the child."""
    return next(f.file for f in child().threads[0].stack if f.function == function)


COMPUTES = Activity("computing", "Python code", place="train.py:9 work")
TASKS = Activity("idle", "waits for something to do")
RANKS = Activity("waiting", "the other ranks in all_reduce", "collective")
OWN_LOCK = Activity("waiting", "a lock or condition of its own process", "lock")


@pytest.mark.parametrize(("other", "is_told"), [(TASKS, False), (RANKS, False), (OWN_LOCK, True)])
def test_one_that_computes_and_got_something_in_between_makes_progress(
    other: Activity, is_told: bool
) -> None:
    job = snapshot_of(waiting(500.0), child(None, state="R", still_s=0.0))

    told = with_shares(job, **{f"p{CHILD}": {COMPUTES: 0.9, other: 0.1}})
    rarely = with_shares(job, **{f"p{CHILD}": {COMPUTES: 0.999, other: 0.001}})

    assert bool(found(no_progress.check, told)) is is_told
    assert only(no_progress.check, rarely).is_doubtful


def test_one_that_mostly_waits_for_a_core_is_in_no_endless_loop() -> None:
    job = snapshot_of(waiting(500.0), child(None, state="R", still_s=0.0))

    hardly = only(
        no_progress.check, with_shares(job, **{f"p{CHILD}": {COMPUTES: 0.2, NO_CORE: 0.8}})
    )
    mostly = only(
        no_progress.check, with_shares(job, **{f"p{CHILD}": {COMPUTES: 0.8, NO_CORE: 0.2}})
    )

    assert "waited for a free core 80% of it: it may only be slow" in hardly.cause
    assert "loop" not in hardly.cause + hardly.advice
    assert "in a loop that does not end" in mostly.cause


@pytest.mark.parametrize(("wrote_ago_s", "is_told"), [(3.0, False), (39.0, True)])
def test_one_that_computes_and_has_written_since_the_others_wait_makes_progress(
    wrote_ago_s: float, is_told: bool
) -> None:
    job = snapshot_of(waiting(40.0), child(None, state="R", still_s=0.0))
    wrote = (Point(NOW_S - 60, 10.0), Point(NOW_S - wrote_ago_s, 20.0))

    assert (
        bool(found(no_progress.check, job, history({(CHILD, "written_bytes"): wrote}))) is is_told
    )


def test_a_worker_that_was_started_since_the_others_wait_is_not_what_they_waited_for() -> None:
    busy = child(None, state="R", still_s=0.0, born_wall_s=WALL_S - 20)

    assert found(no_progress.check, snapshot_of(waiting(40.0), busy)) == []


def test_a_parent_that_waits_for_the_exit_of_its_ranks_is_not_held_up_by_them() -> None:
    joins = ("multiprocessing/connection.py:wait", "torch/multiprocessing/spawn.py:join")
    for waits in (SLEEPS, WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)):
        job = snapshot_of(waiting(500.0, READS, *joins, "train.py:main:7"), child(waits))
        assert found(no_progress.check, job) == []


def test_one_that_is_found_at_work_between_two_sleeps_is_in_no_long_computation() -> None:
    job = snapshot_of(waiting(500.0), child(None, state="R", still_s=0.0))
    sleeps = Activity("sleeping", place="train.py:5 fetch")

    rarely = with_shares(job, **{f"p{CHILD}": {COMPUTES: 0.1, sleeps: 0.9}})
    mostly = with_shares(job, **{f"p{CHILD}": {COMPUTES: 0.9, sleeps: 0.1}})

    assert found(no_progress.check, rarely) == []
    assert "which computes" in only(no_progress.check, mostly).summary


def test_a_wait_that_began_after_a_sleep_has_not_lasted_since_before_it() -> None:
    """The main thread sleeps for its quota, then waits for its pool, and uses no cpu time."""
    reads = Activity("waiting", "data on pipe 500", "pipe", (pid(CHILD),), "train.py:7 main")
    sleeps = Activity("sleeping", place="train.py:5 fetch")
    job = with_shares(snapshot_of(waiting(40.0), child()), **{f"p{MAIN}": {reads: 1.0}})
    (known,) = job.account.processes.values()
    (spent,) = known.uncounted
    slept = spent.buckets[0].tally._replace(seen={sleeps: 5.0})
    buckets = tuple(
        bucket._replace(tally=slept) if place < 10 else bucket
        for place, bucket in enumerate(spent.buckets)
    )
    changed = replace(known, uncounted=(spent._replace(buckets=buckets),))
    went_over = replace(job, account=replace(job.account, processes={known.process: changed}))

    assert "has waited 40 s for" in only(no_progress.check, job).summary
    assert "has waited 10 s for" in only(no_progress.check, went_over).summary


def test_a_child_that_waits_for_work_of_its_sleeping_parent_is_idle() -> None:
    parent = main(
        fds=fds(5, links=[pipe(3, 500, True)]),
        segments=(),
        threads=[thread(MAIN, "train.py:main", waits=SLEEPS, still_s=200.0)],
    )
    idle = process(
        CHILD,
        "spawned",
        fds=fds(5, links=[pipe(3, 500, False)]),
        segments=(),
        threads=[thread(CHILD, "queues.py:get", "train.py:serve", waits=READS, still_s=200.0)],
    )

    assert found(no_progress.check, snapshot_of(parent, idle)) == []


def test_a_wait_for_the_other_end_of_a_connection_is_named() -> None:
    link = socket(7, 77, None, OUTSIDE)
    stuck = child(RECEIVES, "train.py:fetch:4", links=(link,))

    finding = only(no_progress.check, snapshot_of(waiting(200.0), stuck))
    assert f"which waits for data on {OUTSIDE} at train.py:4 fetch" in finding.summary
    assert "outside of the job and sends nothing" in finding.cause
    assert "has no timeout" in finding.cause


def alone(address: str, *more: FdLink) -> Snapshot:
    links = [socket(7, 77, None, address), *more]
    at = thread(MAIN, "train.py:fetch:4", waits=RECEIVES, still_s=70.0)
    return snapshot_of(main(fds=fds(5, links=links), segments=(), threads=[at]))


def test_a_main_process_alone_at_a_connection_that_it_opened_is_a_warning() -> None:
    finding = only(no_progress.check, alone(OUTSIDE))

    assert finding.severity is Severity.WARNING
    assert finding.summary.startswith(
        "main (100) has made no progress for 70 s: it waits for data on tcp"
    )


def test_a_server_waits_for_requests() -> None:
    listens = socket(6, 76, None, "tcp listens on *:8080")

    assert found(no_progress.check, alone("tcp 10.0.0.1:8080 > 10.0.0.2:50000", listens)) == []
    assert found(no_progress.check, alone("tcp listens on *:8080")) == []


def test_a_stopped_process_that_others_wait_for_is_named() -> None:
    stopped = child(WaitedOn("stopped", "read"), state="T", still_s=50.0)

    finding = only(no_progress.check, snapshot_of(waiting(50.0), stopped))
    assert "is stopped by a signal" in finding.summary
    assert "kill -CONT" in finding.advice
    traced = child(WaitedOn("stopped", "read"), state="t", still_s=50.0)
    assert found(no_progress.check, snapshot_of(waiting(50.0), traced)) == []


def test_a_stop_while_another_process_works_and_the_waiter_looks_now_and_then_may_be_meant() -> (
    None
):
    """Whoever stops a process to let another one run continues it later."""
    stopped = child(WaitedOn("stopped", "read"), state="T", still_s=50.0)
    looks = waiting(50.0, WaitedOn("poll", "poll", ("pipe:[500]",), timeout_s=4.0))
    works = process(301, "spawned", threads=[thread(301, "train.py:work:9", still_s=0.5)])
    sent = log("kill", MAIN, pid=CHILD, signal=19, site="train.py:12 suspend")

    meant = only(no_progress.check, snapshot_of(looks, stopped, works, log=(sent,)))
    others = [
        only(no_progress.check, snapshot_of(looks, stopped)),
        only(no_progress.check, snapshot_of(waiting(50.0), stopped, works)),
    ]

    assert meant.severity is Severity.INFO
    assert "main (100) has sent it at train.py:12 suspend" in meant.cause
    assert "may stop a process on purpose" in meant.cause
    assert [each.severity for each in others] == [Severity.WARNING] * 2
    assert not any("on purpose" in each.cause for each in others)


LINE_OF_LOOP = SourceLine(
    "/home/me/train.py",
    9,
    "work",
    Statement(9, "keep = draw(boxes)"),
    endless=EndlessLoop(
        Statement(7, "while True:"), ends=(Statement(11, "if keep.any(): return keep"),)
    ),
)


def computing(source: SourceLine, at: int = 0) -> tuple[Snapshot, History]:
    """Main waits for 40 s for a child whose stacks are all in one function."""
    busy = child(None, state="R", still_s=0.0)
    job = with_shares(
        snapshot_of(waiting(40.0), busy, source=(source,)), p300={Activity("computing"): 1.0}
    )
    account = job.account.processes[pid(CHILD)]
    frames = (Frame("main", "/home/me/train.py", 3), Frame("work", "/home/me/train.py", at))
    own = account.uncounted[0]._replace(callers=(Callers(NOW_S - 38, NOW_S - 1, frames, 9, 0),))
    processes = {**job.account.processes, pid(CHILD): replace(account, uncounted=(own,))}
    busy_past = history({(CHILD, "cpu_percent"): line(100.0)})
    return replace(job, account=replace(job.account, processes=processes)), busy_past


def test_a_computation_in_a_loop_without_an_end_is_reported_with_the_condition_that_ends_it() -> (
    None
):
    finding = only(no_progress.check, *computing(LINE_OF_LOOP))

    assert "gone round in the loop `while True:` of line 7 in work() for 38 s" in finding.cause
    assert "It ends only by `if keep.any(): return keep` (line 11)" in finding.cause
    assert "Count the rounds of the loop" in finding.advice


@pytest.mark.parametrize(
    ("source", "at"),
    [
        (replace(LINE_OF_LOOP, endless=None), 0),
        (
            replace(LINE_OF_LOOP, endless=EndlessLoop(Statement(7, "while True:"), exchanges=True)),
            0,
        ),
        (LINE_OF_LOOP, 9),
    ],
    ids=["no loop", "takes tasks", "one line"],
)
def test_a_loop_that_takes_tasks_or_whose_rounds_are_not_seen_is_not_called_endless(
    source: SourceLine, at: int
) -> None:
    finding = only(no_progress.check, *computing(source, at))

    assert "gone round" not in finding.cause


DRAW = replace(LINE_OF_LOOP, statement=Statement(9, "item = int(self.rng.integers(count))"))


def test_stacks_at_one_line_that_draws_at_random_are_of_many_rounds() -> None:
    finding = only(no_progress.check, *computing(DRAW, 9))

    assert "gone round in the loop `while True:` of line 7 in work() for 38 s" in finding.cause


def test_a_generator_that_gives_nothing_is_reported_with_its_yield() -> None:
    loop = EndlessLoop(
        Statement(7, "while True:"),
        gives=Statement(12, "yield read(group)"),
        given_in=Statement(11, "for group in groups[rank::ranks]:"),
    )

    finding = only(no_progress.check, *computing(replace(LINE_OF_LOOP, endless=loop)))

    assert "only at `yield read(group)` (line 12), in `for group in groups" in finding.cause
    assert "is empty in spawned (300)" in finding.cause
    assert "gets something to iterate over" in finding.advice


def locked(holder: LockHolder | None) -> WaitedOn:
    return WaitedOn("unknown", "flock", ("/tmp/cache.lock",), (3,), holder=holder)


def test_the_holder_of_a_file_lock_is_named() -> None:
    outside = waiting(70.0, locked(LockHolder(4711, "python")))
    inside = waiting(70.0, locked(LockHolder(CHILD, "python")))

    finding = only(no_progress.check, snapshot_of(outside))
    assert "taken by process 4711 (python) outside of this job" in finding.summary
    finding = only(no_progress.check, snapshot_of(inside, child()))
    assert "the lock on /tmp/cache.lock: spawned (300) has it and sleeps" in finding.summary
    assert "main waits for the lock on /tmp/cache.lock" in finding.evidence[0]


def with_lock(number: int, waits: WaitedOn, lock: HeldLock | None, *stack: str) -> Process:
    """A child that has the file of a lock open; it was watched for a minute at one line."""
    at = thread(number, *stack, waits=waits, still_s=0.1)
    link = FdLink(3, "file", "/tmp/cache.lock", None, True)
    held = () if lock is None else (lock,)
    return process(
        number,
        "spawned",
        label=f"replica {number}",
        fds=replace(fds(4, links=[link]), locks=held),
        threads=[at],
    )


TRIES = WaitedOn("timer", "clock_nanosleep", timeout_s=0.25)


def lock_kept_by(
    holder: Process,
    tries_s: float = 60.0,
    taken_by: ProcessId | None = None,
    stack: tuple[str, ...] = ("data.py:acquire:28",),
) -> Snapshot:
    """A replica that tries for a lock of a file again and again, which main joins."""
    joins = WaitedOn("child", "wait4", ("pid 301",))
    own = main(segments=(), threads=[thread(MAIN, "train.py:main:7", waits=joins, still_s=90.0)])
    replica = with_lock(301, TRIES, None, *stack)
    what = "the lock on /tmp/cache.lock"
    tries = Activity("waiting", what, "lock", (taken_by or holder.process,), "data.py:28 acquire")
    return with_account(own, replica, tries_s, holder, doing=tries)


ASLEEP = Activity("sleeping", place="data.py:28 until_it_exists")


def with_account(
    own: Process,
    sleeper: Process,
    asleep_s: float,
    *others: Process,
    doing: Activity = ASLEEP,
) -> Snapshot:
    """A job of which one process did the same for some seconds."""
    here = doing
    seen = Tally(asleep_s, 0.1, asleep_s, {here: asleep_s})
    past = ThreadAccount(sleeper.pid, "python", here, NOW_S, 60, 10, buckets=(Bucket(200, seen),))
    account = ProcessAccount(sleeper.process, NOW_S, 60, (past,), (10,))
    known = Account(own.process, NOW_S - 60, NOW_S, 60, {sleeper.process: account})
    return snapshot_of(own, sleeper, *others, account=known)


def test_a_lock_that_a_child_has_inherited_is_explained() -> None:
    """Replica 303 has built the cache under a lock, and started its heartbeat meanwhile."""
    heir = with_lock(302, TRIES, HeldLock("/tmp/cache.lock", "flock", True, 303), "train.py:beat:9")
    taker = process(303, "spawned", label="replica 303", fds=fds(3, links=()))

    job = lock_kept_by(heir)
    finding = only(no_progress.check, replace(job, processes=(*job.processes, taker)))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "replica 301 (301) has waited at least 60 s for the lock on /tmp/cache.lock: replica 302 "
        "(302) has it and sleeps again and again at train.py:9 beat"
    )
    assert "replica 303 (303) took this lock with flock() and has closed its own" in finding.cause
    assert "LOCK_UN" in finding.advice


def test_a_lock_that_its_holder_keeps_is_reported_with_the_line_of_the_holder() -> None:
    holder = with_lock(
        302, TRIES, HeldLock("/tmp/cache.lock", "flock", True, 302), "train.py:save:9"
    )

    finding = only(no_progress.check, lock_kept_by(holder))

    assert "replica 302 (302) holds the lock on /tmp/cache.lock" in finding.cause
    assert finding.subject == "/tmp/cache.lock"  # the same finding when the next one has it
    assert "outside of the lock" in finding.advice


def test_a_file_lock_that_was_left_behind_names_the_function_that_takes_it() -> None:
    """A function that only takes the lock, such as `acquire`, is left with it by design."""
    kept = HeldLock("/tmp/cache.lock", "flock", True, 302)
    takes = ("data.py:acquire:28", "data.py:publish:12", "train.py:main:7")

    def finding(*stack: str) -> Finding:
        holder = with_lock(302, TRIES, kept, *stack)
        return only(no_progress.check, lock_kept_by(holder, stack=takes))

    left, inside = finding("train.py:beat:9", "train.py:main:8"), finding("data.py:publish:14")
    assert "outside of publish()" in left.cause
    assert "on every way out of publish() (data.py:12 publish)" in left.advice
    assert "publish()" not in inside.cause + inside.advice


@pytest.mark.parametrize(
    ("around", "is_kept"),
    [
        ((Statement(13, "while self.is_active:"),), True),
        ((Statement(10, "try:"), Statement(13, "for shard in shards:")), True),
        ((Statement(10, "while True:"),), False),
        ((Statement(13, "while self.is_active:"), Statement(14, "with self.lock:")), False),
        ((Statement(13, "if self.is_active:"),), False),
    ],
)
def test_a_lock_that_is_kept_through_a_loop_may_be_what_a_standby_waits_for(
    around: tuple[Statement, ...], is_kept: bool
) -> None:
    file, lock = "/home/me/data.py", HeldLock("/tmp/cache.lock", "flock", True, 302)
    holder = with_lock(302, TRIES, lock, "data.py:publish:15", "train.py:main:7")
    stack = ("data.py:acquire:28", "data.py:publish:12", "train.py:main:7")
    source = (
        SourceLine(file, 12, "publish", Statement(12, "self.lock.acquire()"), defined=9),
        SourceLine(file, 15, "publish", Statement(15, "sleep(1)"), within=around, defined=9),
    )
    job = replace(lock_kept_by(holder, stack=stack), source=source)

    finding = only(no_progress.check, job)

    assert (
        "replica 302 (302) has taken the lock on /tmp/cache.lock before the loop "
        f"`{around[-1].text}` of line 13 in publish() and keeps it" in finding.cause
    ) is is_kept
    assert ("if replica 301 (301) is to stand by and take over" in finding.advice) is is_kept
    assert ("Give the attempts of the others a limit" in finding.advice) is not is_kept


def test_a_lock_that_is_taken_anew_in_the_loop_is_not_kept_through_it() -> None:
    file, lock = "/home/me/data.py", HeldLock("/tmp/cache.lock", "flock", True, 302)
    holder = with_lock(302, TRIES, lock, "data.py:publish:15", "train.py:main:7")
    loop, taken = Statement(13, "while self.is_active:"), Statement(14, "self.lock.acquire()")
    source = (
        SourceLine(file, 12, "publish", Statement(12, "self.lock.acquire()"), defined=9),
        SourceLine(
            file, 15, "publish", Statement(15, "sleep(1)"), (loop,), held=(taken,), defined=9
        ),
    )
    stack = ("data.py:acquire:28", "data.py:publish:12", "train.py:main:7")

    finding = only(no_progress.check, replace(lock_kept_by(holder, stack=stack), source=source))

    assert finding.severity is Severity.WARNING
    assert "through all rounds" not in finding.cause


@pytest.mark.parametrize(
    ("header", "ends", "severity"),
    [
        ("while time.time() < until:", None, Severity.INFO),
        ("while not self.stopped.is_set():", None, Severity.INFO),
        ("while True:", (), Severity.INFO),
        ("while True:", (Statement(14, "if os.path.exists(path): break"),), Severity.WARNING),
        ("while not os.path.exists(path):", None, Severity.WARNING),
        ("for epoch in range(epochs):", None, Severity.WARNING),
    ],
)
def test_a_standby_that_main_joins_is_no_warning(
    header: str, ends: tuple[Statement, ...] | None, severity: Severity
) -> None:
    """What works until it is told to end keeps its lock for that long by design."""
    file, lock = "/home/me/data.py", HeldLock("/tmp/cache.lock", "flock", True, 302)
    holder = with_lock(302, TRIES, lock, "data.py:publish:15", "train.py:main:7")
    loop = Statement(13, header)
    endless = None if ends is None else EndlessLoop(loop, ends)
    source = (
        SourceLine(file, 12, "publish", Statement(12, "self.lock.acquire()"), defined=9),
        SourceLine(
            file, 15, "publish", Statement(15, "sleep(1)"), (loop,), endless=endless, defined=9
        ),
    )
    stack = ("data.py:acquire:28", "data.py:publish:12", "train.py:main:7")

    finding = only(no_progress.check, replace(lock_kept_by(holder, stack=stack), source=source))

    assert finding.severity is severity


def test_a_lock_that_changes_hands_is_no_lack_of_progress() -> None:
    holder = with_lock(
        302, TRIES, HeldLock("/tmp/cache.lock", "flock", True, 302), "train.py:save:9"
    )
    job = lock_kept_by(holder, taken_by=pid(303))
    blocked = thread(
        301, "data.py:append:16", waits=locked(LockHolder(302, "python")), still_s=60.0
    )
    waits = replace(job.processes[1], threads=(blocked,))

    assert found(no_progress.check, job) == []
    assert found(no_progress.check, replace(job, processes=(job.processes[0], waits, holder))) == []


@pytest.mark.parametrize(("still_s", "is_told"), [(300.0, True), (2.0, False)])
def test_a_holder_that_has_not_run_has_kept_its_lock_since_then(
    still_s: float, is_told: bool
) -> None:
    """Known at the first reading: to take a lock, a process has to run."""
    lock = HeldLock("/tmp/cache.lock", "flock", True, 302)
    holder = with_lock(302, SLEEPS, lock, "train.py:save:9")
    holder = replace(holder, threads=(replace(holder.threads[0], still_s=still_s),))
    waits = locked(LockHolder(302, "python"))
    blocked = with_lock(301, waits, None, "data.py:append:16")
    blocked = replace(blocked, threads=(replace(blocked.threads[0], still_s=300.0, waits_s=300.0),))

    findings = found(no_progress.check, with_account(main(segments=()), blocked, 0.5, holder))

    assert ["5 min" in each.summary for each in findings] == [True] * is_told


def test_a_lock_that_was_tried_for_a_short_time_only_is_quiet() -> None:
    holder = with_lock(
        302, TRIES, HeldLock("/tmp/cache.lock", "flock", True, 302), "train.py:save:9"
    )

    assert found(no_progress.check, lock_kept_by(holder, 5.0)) == []


def test_a_loop_that_sleeps_at_one_line_while_main_waits_is_a_warning() -> None:
    """It looks for a file, say, that never comes."""

    def severity(asleep_s: float) -> Severity:
        own = waiting(70.0)
        polls = child(TRIES, "data.py:until_it_exists:28", still_s=0.1)
        return only(no_progress.check, with_account(own, polls, asleep_s)).severity

    assert severity(65.0) is Severity.WARNING
    assert severity(20.0) is Severity.INFO


CONNECTS = SourceLine(
    "/home/me/data.py",
    22,
    "connect",
    Statement(22, "time.sleep(1.0)"),
    connects=Statement(18, "self.conn = Client(self.address)"),
)


def connecting(asleep_s: float, *others: Process) -> Snapshot:
    tries = child(TRIES, "data.py:connect:22", still_s=0.1)
    return replace(with_account(main(), tries, asleep_s, *others), source=(CONNECTS,))


def test_a_process_that_only_tries_to_connect_is_named_with_what_has_ended() -> None:
    server = process(400, "spawned", label="ps:0", ended=exited(400, signal=9))

    alone = only(no_progress.check, connecting(30.0))
    finding = only(no_progress.check, connecting(30.0, server))

    assert alone.summary == (
        "spawned (300) tries to connect again and again at data.py:22 connect, for 30 s: no server "
        "answers"
    )
    assert alone.severity is Severity.INFO
    assert "has not begun to listen yet" in alone.cause
    assert finding.summary == f"{alone.summary}; ps:0 (400) has ended"
    assert "ps:0 (400) ended: signal 9 (SIGKILL)" in finding.evidence
    assert finding.cause.startswith("Most likely ps:0 (400) was the server, or had started it")


def test_a_process_that_has_tried_to_connect_for_a_short_time_is_quiet() -> None:
    assert found(no_progress.check, connecting(15.0)) == []


def test_a_pipe_that_no_process_of_the_job_writes_to_is_read_in_vain() -> None:
    """What a shell has left behind has inherited its output, and is no child of the job now."""

    def job(*stack: str, fd: int = 3) -> Snapshot:
        reads = WaitedOn("pipe-read", "read", ("pipe:[500]",), (fd,))
        return snapshot_of(waiting(70.0, reads, *stack))

    finding = only(no_progress.check, job("train.py:build:7"))

    assert finding.severity is Severity.WARNING
    assert "No process of this job has the writing end" in finding.cause
    assert found(no_progress.check, job("train.py:build:7", fd=0)) == []
    assert found(no_progress.check, job("connection.py:_recv", "train.py:work:7")) == []


@pytest.mark.parametrize(("rest", "is_told"), [("data.py:read:37", True), ("", False)])
def test_a_pool_without_a_thread_for_what_its_threads_wait_for_is_reported(
    rest: str, is_told: bool
) -> None:
    """With a thread that waits for a call, the further calls would run."""
    pool = "concurrent/futures/thread.py:_worker:83"
    result = ("threading.py:wait:327", "concurrent/futures/_base.py:result:451", "data.py:both:55")
    futex, reads = WaitedOn("futex", "futex"), WaitedOn("pipe-read", "read", ("pipe:[600]",))
    calls = (rest, pool) if rest else (pool,)
    threads = [
        thread(CHILD, "queue.py:get:171", "train.py:work:9", waits=futex, still_s=60.0),
        thread(CHILD + 1, *result, pool, waits=futex, still_s=60.0, name="flight_0"),
        thread(CHILD + 2, *calls, waits=reads, still_s=60.0, name="flight_1"),
    ]
    stuck = replace(child(futex), threads=tuple(threads))

    finding = only(no_progress.check, snapshot_of(waiting(40.0), stuck))

    words = "All 2 threads of the thread pool flight of spawned (300) are blocked in calls"
    assert (words in finding.cause) is is_told
    assert ("1 waits for results of further calls at data.py:55 both" in finding.cause) is is_told
    assert ("the others at data.py:37 read" in finding.cause) is is_told
    assert ("the same pool" in finding.advice) is is_told


@pytest.mark.parametrize(
    ("more", "is_told"),
    [((), True), ((pipe(9, 600, True),), False), ((pipe(0, 600, False),), False)],
)
def test_an_event_loop_that_reads_what_only_others_write_is_reported(
    more: tuple[FdLink, ...], is_told: bool
) -> None:
    loop = WaitedOn("poll", "epoll_wait", ("pipe:[600]", "socket:[77]"), (8, 7))
    stack = ("selectors.py:select:468", "asyncio/base_events.py:_run_once:1898", "agent.py:main:42")
    links = (socket(7, 77, 78), socket(6, 78, 77), *(more or (pipe(8, 600, False),)))
    job = snapshot_of(waiting(40.0), child(loop, *stack, links=links))

    finding = only(no_progress.check, job)

    assert ("an event loop that waits for data on pipe 600" in finding.cause) is is_told
    assert ("os.killpg" in finding.advice) is is_told


def test_a_wait_for_an_end_of_file_names_the_holders_of_the_other_end() -> None:
    """A child has ended; what it has started has inherited its output, which a loop waits for."""
    polls = WaitedOn("poll", "epoll_wait", ("pipe:[500]",))
    ended = process(250, "other", label="build.sh", ended=exited(250, exit_code=0))
    daemon = child(still_s=200.0, parent=None, original_parent=250)

    finding = only(no_progress.check, snapshot_of(waiting(40.0, polls), ended, daemon))

    assert "build.sh (250) has ended. spawned (300), which it started, has inherited" in (
        finding.cause
    )
    assert "no end of file" in finding.cause
    assert "DEVNULL" in finding.advice


def test_a_prompt_and_a_debugger_wait_for_a_person() -> None:
    reads = WaitedOn("unknown", "read", ("/dev/pts/3",), (0,))
    debugs = thread(MAIN, "pdb.py:cmdloop", "train.py:main", waits=reads, still_s=500.0)

    assert found(no_progress.check, snapshot_of(waiting(500.0, reads))) == []
    assert found(no_progress.check, snapshot_of(main(segments=(), threads=[debugs]))) == []


def test_a_wait_for_a_thread_lock_has_the_lines_of_the_other_threads() -> None:
    futex = WaitedOn("futex", "futex", ("futex 0x1",))
    threads = [
        thread(MAIN, "train.py:save:5", waits=futex, still_s=90.0),
        thread(101, "train.py:load:8", name="loader", waits=futex, still_s=90.0),
    ]
    finding = only(no_progress.check, snapshot_of(main(segments=(), threads=threads)))

    assert "at train.py:5 save" in finding.summary
    assert "its thread loader is at train.py:8 load" in finding.evidence
    waits = thread(MAIN, "threading.py:wait", "train.py:main", waits=futex, still_s=90.0)
    assert (
        found(no_progress.check, snapshot_of(main(segments=(), threads=[waits, threads[1]]))) == []
    )


LOCK = SegmentId(9, 7)
WAITS_FOR_LOCK = WaitedOn("semaphore", "futex", segment=LOCK)


def shares_lock(number: int, waits: WaitedOn, place: str, **fields: Any) -> Process:
    """A process that has a semaphore mapped."""
    use = replace(uses(1, creator=MAIN, first_inode=7)[0], kind="semaphore", ranges=((0, 4096),))
    takes = "multiprocessing/synchronize.py:__enter__"
    at = thread(number, takes, place, waits=waits, still_s=70.0)
    return process(
        number, "spawned", label=f"reader {number}", segments=(use,), threads=[at], **fields
    )


def test_a_process_that_only_has_a_lock_open_is_not_called_its_holder() -> None:
    use = replace(uses(1, creator=MAIN, first_inode=7)[0], kind="semaphore", ranges=((0, 4096),))
    asleep = thread(MAIN, "train.py:main:71", waits=SLEEPS, still_s=70.0)
    dead = shares_lock(302, WAITS_FOR_LOCK, "data.py:take:40", ended=exited(302, signal=9))
    job = snapshot_of(
        main(segments=(use,), threads=[asleep]),
        shares_lock(300, WAITS_FOR_LOCK, "data.py:push:23"),
        shares_lock(301, WAITS_FOR_LOCK, "data.py:take:33"),
        dead,
    )

    finding = only(no_progress.check, job)

    assert finding.summary == (
        "reader 300 (300) and 1 other have waited 70 s for a lock between processes that no "
        "process is seen to hold"
    )
    assert "stays locked when its holder is killed" in finding.cause
    text = " ".join(finding.evidence)
    assert "main (100), which has this lock too, sleeps at train.py:71 main" in text
    assert "reader 302 (302) (signal 9 (SIGKILL))" in text


def test_a_program_at_its_end_that_waits_for_a_thread_is_information() -> None:
    waits = WaitedOn("futex", "futex", futex_command=9)
    leaving = main(
        segments=(),
        threads=[
            thread(MAIN, "threading.py:_shutdown", waits=waits, still_s=90.0),
            thread(101, "data.py:run:14", name="monitor", waits=SLEEPS, still_s=90.0),
        ],
    )

    finding = only(no_progress.check, snapshot_of(leaving))

    assert finding.severity is Severity.INFO
    assert "has come to its end and has waited 90 s for its other threads" in finding.summary
    assert "its thread monitor is at data.py:14 run" in finding.evidence


def test_two_processes_that_open_two_fifos_in_different_order_are_named() -> None:
    def opens(path: str, end: str) -> WaitedOn:
        return WaitedOn("unknown", "openat", (f"a process that opens {path} {end}",))

    own = thread(MAIN, "train.py:start:25", waits=opens("/tmp/meta", "for writing"), still_s=40.0)
    other = thread(CHILD, "data.py:start:15", waits=opens("/tmp/frames", "for reading"))
    job = snapshot_of(
        main(segments=(), threads=[own]),
        process(
            CHILD, "spawned", label="camera", segments=(), threads=[replace(other, still_s=40.0)]
        ),
    )

    first, second = found(no_progress.check, job)
    (alone,) = found(no_progress.check, replace(job, processes=job.processes[:1]))

    assert (first.severity, alone.severity) == (Severity.WARNING, Severity.INFO)
    assert "it waits for a process that opens /tmp/meta for writing at train.py:25" in first.summary
    assert any(
        "camera (300) waits for a process that opens /tmp/frames" in e for e in first.evidence
    )
    assert "same order" in second.advice


DATABASE = "/tmp/study.db"


def of_database(*stack: str, timeout_s: float = 0.1) -> Snapshot:
    """A worker that waits for the lock on a database, and one that has it at another line."""

    def worker(number: int, waits: WaitedOn, *stack: str, locks: tuple[HeldLock, ...]) -> Process:
        at = thread(number, *stack, waits=waits, still_s=0.1)
        links = replace(fds(4, links=[FdLink(3, "file", DATABASE, None, True)]), locks=locks)
        return process(number, "spawned", label=f"worker {number}", fds=links, threads=[at])

    def timer(timeout_s: float) -> WaitedOn:
        return WaitedOn("timer", "clock_nanosleep", timeout_s=timeout_s)

    joins = WaitedOn("child", "wait4", ("pid 301",))
    own = main(segments=(), threads=[thread(MAIN, "train.py:main:7", waits=joins, still_s=90.0)])
    lock = HeldLock(DATABASE, "fcntl", True, 302)
    holder = worker(302, timer(timeout_s), *stack, locks=(lock,))
    tries = Activity(
        "waiting", f"the lock on {DATABASE}", "lock", (holder.process,), "data.py:26 finish"
    )
    waiter = worker(301, timer(0.1), "data.py:finish:26", locks=())
    writes = SourceLine("/home/me/data.py", 26, "finish", Statement(26, "db.execute(SQL, row)"))
    return replace(with_account(own, waiter, 60.0, holder, doing=tries), source=(writes,))


def test_a_transaction_that_waits_for_its_own_database_is_distinguished() -> None:
    finding = only(no_progress.check, of_database("data.py:finish:26"))

    assert "likely it waits for its own lock, by a second connection" in finding.cause
    assert "the connection that began the transaction" in finding.advice


def test_a_transaction_that_was_left_open_is_distinguished_from_a_slow_one() -> None:
    """Whoever is inside of the function that begins a transaction may be at its slow part."""
    left = only(no_progress.check, of_database("data.py:poll:48", "train.py:work:9", timeout_s=0.4))
    slow = only(
        no_progress.check, of_database("data.py:poll:48", "data.py:finish:31", timeout_s=0.4)
    )

    assert "worker 302 (302) has it and sleeps again and again at data.py:48 poll" in left.summary
    assert "has begun a transaction that writes to /tmp/study.db and has not ended" in left.cause
    assert "on every way out of finish() (data.py:26 finish)" in left.advice
    assert "left open" not in slow.cause
    assert "of finish()" not in slow.advice
    assert "Commit or roll back before the slow part" in slow.advice


ACCEPTS = WaitedOn("accept", "accept4", ("socket:[88]",))
EVENT_LOOP = ("asyncio/base_events.py:_run_once", "asyncio/runners.py:run", "train.py:main:7")


def server() -> Process:
    """A program that main has started, waiting for a client."""
    at = thread(CHILD, "data.py:serve:29", waits=ACCEPTS, still_s=60.0)
    listener = socket(3, 88, None, "tcp listens on 127.0.0.1:4000")
    links = fds(5, links=[pipe(4, 500, True), listener])
    return process(CHILD, "other", label="server.py", threads=[at], fds=links, segments=())


def test_a_root_that_waits_for_an_idle_process_is_information() -> None:
    finding = only(no_progress.check, snapshot_of(waiting(40.0), server()))

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        f"this job has made no progress for 40 s: main ({MAIN}) waits for server.py, which "
        "waits for something to do"
    )
    assert "a request or its answer was lost" in finding.cause
    assert "asyncio" not in finding.cause


def test_tasks_that_ended_are_named_only_where_there_is_an_event_loop() -> None:
    own = waiting(40.0, READS, *EVENT_LOOP)

    finding = only(no_progress.check, snapshot_of(own, server()))

    assert "Tasks of asyncio that have ended with an exception" in finding.cause


def test_a_root_that_waits_for_an_idle_process_while_another_works_is_not_reported() -> None:
    works = process(301, "spawned", threads=[thread(301, "train.py:work:9", still_s=0.5)])

    assert found(no_progress.check, snapshot_of(waiting(40.0), server(), works)) == []
    assert found(no_progress.check, snapshot_of(waiting(20.0), server())) == []


POLLS = WaitedOn("poll", "poll", ("pipe:[500]",), timeout_s=0.25)
POLLED = Activity("waiting", "an item of a queue", "queue", (pid(CHILD),), "train.py:44 main")


def polling(doing: Activity = POLLED, wait: WaitedOn = POLLS) -> Snapshot:
    """Main, which waits for its child a quarter of a second at a time; the child sleeps."""
    own = waiting(0.1, wait)
    links = (pipe(4, 500, True),)
    return with_shares(snapshot_of(own, child(links=links)), **{f"p{MAIN}": {doing: 1.0}})


def polls(read_ago_s: float = 40.0, cpu_percent: float = 1.0, per_s: float = 4.0) -> History:
    read = (Point(NOW_S - 100, 10.0), Point(NOW_S - read_ago_s, 20.0))
    switches = line(4000.0, per_s=per_s)
    return history(
        {
            (MAIN, "main_read_bytes"): read,
            (MAIN, "cpu_percent"): line(cpu_percent),
            (MAIN, "voluntary_switches"): switches,
        }
    )


def test_a_wait_with_a_time_limit_that_is_begun_again_and_again_is_no_progress() -> None:
    finding = only(no_progress.check, polling(), polls())

    assert finding.severity is Severity.WARNING
    assert finding.summary.startswith(f"main ({MAIN}) has waited 40 s for spawned ({CHILD})")


def test_a_poll_to_which_something_came_or_which_is_for_something_else_is_progress() -> None:
    event = POLLED._replace(what="an event or condition between processes", target="event")

    assert found(no_progress.check, polling(), polls(read_ago_s=3.0)) == []
    assert found(no_progress.check, polling(), polls(cpu_percent=30.0)) == []
    assert found(no_progress.check, polling(event), polls()) == []


def test_a_poll_that_wakes_up_far_more_often_than_its_time_limit_ends_gets_something() -> None:
    """What is received from a socket with recv() is in no count of bytes read."""
    longer = polling(wait=replace(POLLS, timeout_s=30.0))
    endless = polling(wait=replace(POLLS, timeout_s=None))

    assert found(no_progress.check, longer, polls()) == []  # it is woken up 4 times a second
    assert found(no_progress.check, endless, polls(per_s=4.0)) != []
    assert found(no_progress.check, endless, polls(per_s=20.0)) == []


def test_a_lock_file_kept_by_one_that_waits_for_those_that_poll_is_named() -> None:
    """A file on which the kernel has a lock is no lock by its existence."""
    path = "/tmp/corpus/index.lock"
    again = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)
    polls = child(again, "data.py:wait:28", "data.py:ensure:60", still_s=0.1)

    def job(name: str, *locks: HeldLock) -> Snapshot:
        links = [pipe(3, 500, False), FdLink(4, "file", name, None, True)]
        own = replace(waiting(40.0).sample, fds=replace(fds(5, links=links), locks=locks))
        return snapshot_of(replace(waiting(40.0), sample=own), polls)

    finding = only(no_progress.check, job(path))
    others = [job("/tmp/clock"), job(path, HeldLock(path, "flock", True, MAIN))]

    assert finding.severity is Severity.WARNING
    assert (
        "most likely until the lock file /tmp/corpus/index.lock is gone, which main (100) has"
        in (finding.summary)
    )
    assert "Remove index.lock in a finally block" in finding.advice
    assert "in ensure() (data.py:60 ensure)" in finding.advice
    for each in others:
        assert "index.lock" not in only(no_progress.check, each).summary


def test_a_lock_file_that_a_killed_process_may_have_left_is_a_warning() -> None:
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)
    stack = ("torch/utils/file_baton.py:wait", "data.py:load_ops:48")
    waits = thread(CHILD, *stack, waits=sleeps, still_s=40.0)
    builder = process(301, role="spawned", label="prebuild", ended=exited(301, signal=9))
    alone = process(CHILD, role="spawned", label="rank 0", segments=(), threads=[waits])

    calm = history({(CHILD, "cpu_percent"): line(0.0, seconds=60.0)})
    tries = {Activity("waiting", "a lock file", "lock"): 1.0}
    finding = only(
        no_progress.check, with_shares(snapshot_of(main(), alone, builder), p300=tries), calm
    )
    other = only(no_progress.check, with_shares(snapshot_of(main(), alone), p300=tries), calm)

    assert finding.severity is Severity.WARNING
    assert "waits for a lock file at data.py:48 load_ops" in finding.summary
    assert any("prebuild (301) ended" in each for each in finding.evidence)
    assert not any("lock file that it had" in each for each in other.evidence)


CHILD_WAIT = WaitedOn("child", "wait4", (f"pid {CHILD}",))
BATON = ("torch/utils/file_baton.py:wait", "data.py:load_ops:48")


def builds(*more: Process, top: Process | None = None, **awake: Any) -> Any:
    """Main joins a process that has polled for a lock file for 40 s; with its account."""
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)
    waits = thread(CHILD, *BATON, **(awake or {"waits": sleeps, "still_s": 40.0}))
    joins = thread(MAIN, "train.py:main:64", waits=CHILD_WAIT, still_s=40.0)
    rank = process(CHILD, role="spawned", label="rank 0", segments=(), threads=[waits])
    tries = {Activity("waiting", "a lock file", "lock"): 1.0}
    job = snapshot_of(top or main(threads=[joins], segments=()), rank, *more)
    return with_shares(job, p300=tries), history({(CHILD, "cpu_percent"): line(0.0, seconds=60.0)})


@pytest.mark.parametrize("awake", [{}, {"state": "R", "still_s": 0.0}], ids=["asleep", "awake"])
def test_a_lock_file_for_which_the_whole_job_waits_was_left_by_a_process_that_ended(
    awake: dict[str, Any],
) -> None:
    """A reading may find it between two sleeps."""
    finding = only(no_progress.check, *builds(**awake))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "rank 0 (300) waits for a lock file at data.py:48 load_ops that no living process of this "
        "job has made"
    )
    assert "or another job has it now" in finding.cause
    assert "`lock` in the directory of the build" in finding.advice


def test_a_killed_process_has_left_the_lock_file_for_which_the_others_wait() -> None:
    builder = process(301, role="spawned", label="prebuild", ended=exited(301, signal=9))

    finding = only(worker_exited_unexpectedly.check, *builds(builder))

    assert finding.severity is Severity.CRITICAL
    assert finding.summary.endswith(
        "a lock file at data.py:48 load_ops that prebuild (301) left when a signal ended it"
    )
    assert "prebuild (301) ended: signal 9 (SIGKILL)" in finding.evidence
    assert "Remove the file" in finding.advice


def test_a_lock_file_that_a_process_at_work_may_have_is_not_called_left() -> None:
    """One process builds, and main computes: either may have made the file."""
    works = process(301, "spawned", label="rank 1", threads=[thread(301, "a.py:b", state="R")])
    busy = main(threads=[thread(MAIN, "train.py:main:3", state="R")], segments=())

    for job, past in (builds(works), builds(top=busy)):
        assert not any(
            "no living process" in each.summary for each in found(no_progress.check, job, past)
        )


GONE = SourceLine(
    "/home/me/data.py",
    21,
    "wait",
    Statement(21, "time.sleep(self.poll)"),
    within=(Statement(20, "while os.path.exists(self.path):"),),
)
BUILDS = SourceLine(
    "/home/me/train.py",
    30,
    "get",
    Statement(30, "baton.wait()"),
    skips=(
        Skip(
            Statement(23, "if baton.try_acquire():"),
            Statement(24, "vocab = self._build(language)"),
            None,
            Statement(28, "baton.release()"),
            by_error=True,
        ),
    ),
)
ONCE_MADE = replace(GONE, within=(Statement(20, "while not os.path.exists(self.path):"),))


def polling_for_a_file(
    *source: SourceLine, links: tuple[FdLink, ...] = (), more: tuple[Process, ...] = ()
) -> Snapshot:
    """Main waits for the results of two processes that sleep in a loop for 40 s."""
    asleep = {Activity("sleeping", place="data.py:21 wait"): 1.0}
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)

    def worker(number: int, *links: FdLink) -> Process:
        at = thread(number, "data.py:wait:21", "train.py:get:30", waits=sleeps, still_s=0.1)
        return process(
            number,
            "spawned",
            label=f"worker {number}",
            segments=(),
            fds=fds(5, links=[pipe(4, 500, True), *links]),
            threads=[at],
        )

    job = snapshot_of(waiting(40.0), worker(300), worker(301, *links), *more, source=source)
    return with_shares(job, p300=asleep, p301=asleep)


def test_a_lock_file_that_one_of_those_that_wait_has_made_is_reported_with_the_lines() -> None:
    open_lock = FdLink(7, "file", "/tmp/corpus/pl.lock", None, True)

    known = only(no_progress.check, polling_for_a_file(GONE, BUILDS, links=(open_lock,)))
    likely = only(no_progress.check, polling_for_a_file(GONE, BUILDS))

    assert known.severity is Severity.WARNING
    assert known.summary == (
        "worker 300 (300) and worker 301 (301) wait for a lock file at data.py:21 wait that "
        "worker 301 (301) has made and not removed"
    )
    assert "worker 301 (301) has /tmp/corpus/pl.lock open" in known.cause
    assert likely.summary.endswith("that most likely an exception has left behind, at train.py:24")
    for each in (known, likely):
        assert "`vocab = self._build(language)` (train.py:24) is between" in each.cause
        assert "Put `baton.release()` into a finally block" in each.advice


def test_a_file_that_another_process_may_remove_or_that_is_to_be_made_is_no_left_lock() -> None:
    works = process(302, "spawned", threads=[thread(302, "a.py:b:1", state="R", still_s=0.0)])

    for job in (
        polling_for_a_file(GONE, BUILDS, more=(works,)),
        polling_for_a_file(ONCE_MADE, BUILDS),
        polling_for_a_file(BUILDS),
    ):
        assert not any("lock file" in each.summary for each in found(no_progress.check, job))


def test_a_job_that_waits_for_a_thread_of_main_is_reported_where_its_threads_are() -> None:
    joins = thread(
        MAIN,
        "threading.py:join",
        "concurrent/futures/process.py:shutdown",
        "train.py:run:40",
        waits=WaitedOn("futex", "futex"),
        still_s=40.0,
    )
    manager = thread(101, "data.py:collect:9", name="manager", waits=READS, still_s=40.0)

    finding = only(no_progress.check, snapshot_of(main(threads=[joins, manager], segments=())))

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        "this job has made no progress for 40 s: main (100) waits for the end of another thread at "
        "train.py:40 run"
    )
    assert "its thread manager is at data.py:9 collect" in finding.evidence


def test_a_job_with_a_thread_that_wakes_now_and_then_is_not_said_to_be_without_any_movement() -> (
    None
):
    joins = thread(
        MAIN,
        "threading.py:join",
        "train.py:run:40",
        waits=WaitedOn("futex", "futex"),
        still_s=40.0,
    )
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=5.0)
    reports = thread(101, "data.py:report:53", name="report", waits=sleeps, still_s=2.0)

    finding = only(no_progress.check, snapshot_of(main(threads=[joins, reports], segments=())))

    assert finding.summary.startswith("this job has made no progress for 40 s: main (100) waits")
    assert "no process of the job has used cpu for 40 s, short wakes aside" in finding.evidence
    assert "its thread report is at data.py:53 report" in finding.evidence


@pytest.mark.parametrize("name", ["self.slots", "self.others"])
def test_a_permit_that_a_callback_does_not_give_back_is_named_where_main_takes_one(
    name: str,
) -> None:
    takes = thread(
        MAIN,
        "threading.py:acquire",
        "train.py:submit:14",
        waits=WaitedOn("futex", "futex"),
        still_s=40.0,
    )
    reports = thread(101, "train.py:report:53", name="reports", waits=READS, still_s=40.0)
    source = SourceLine("/home/me/train.py", 14, "submit", Statement(14, "self.slots.acquire()"))
    mark = Mark("unreleased", "/home/me/gate.py", "done", f"{name}, 0", Statement(33, "keep(x)"))
    job = snapshot_of(main(threads=[takes, reports], segments=()), source=(source,), marks=(mark,))

    finding = only(no_progress.check, job)

    is_it = name == "self.slots"
    assert finding.severity is (Severity.WARNING if is_it else Severity.INFO)
    told = "an exception at `keep(x)` at gate.py:33 done leaves out the release of self.slots"
    assert (told in finding.cause) is is_it
    assert finding.advice.startswith("Release self.slots on every way") is is_it


def test_an_event_loop_that_a_coroutine_blocks_is_a_warning() -> None:
    blocked = thread(
        MAIN,
        "threading.py:wait",
        "concurrent/futures/_base.py:result",
        "train.py:get:62",
        *EVENT_LOOP,
        waits=WaitedOn("futex", "futex"),
        still_s=40.0,
    )
    reader = thread(101, "data.py:read:5", name="reader", waits=READS, still_s=40.0)

    finding = only(no_progress.check, snapshot_of(main(threads=[blocked, reader], segments=())))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "this job has made no progress for 40 s: the event loop of main (100) is blocked at "
        "train.py:62 get, where it waits for the result of a future"
    )
    assert "run_coroutine_threadsafe comes from that loop" in finding.cause
    assert "Only another thread" not in finding.cause


def test_an_executor_that_runs_a_call_may_set_the_result_for_which_a_loop_waits() -> None:
    result = ("threading.py:wait", "concurrent/futures/_base.py:result", "train.py:get:62")
    own = thread(MAIN, *result, *EVENT_LOOP, waits=WaitedOn("futex", "futex"), still_s=40.0)

    def cause(*stack: str) -> str:
        worker = thread(102, *stack, waits=READS, still_s=40.0)
        return only(no_progress.check, snapshot_of(main(threads=[own, worker], segments=()))).cause

    works = cause("data.py:load:9", "concurrent/futures/thread.py:_worker")
    assert "Only another thread of main (100) can end this wait" in works
    assert "comes from that loop" in cause("concurrent/futures/thread.py:_worker")


def test_a_blocked_event_loop_is_the_end_of_a_chain_whatever_its_threads_wait_for() -> None:
    """A thread of main waits for answers of the child, which waits for requests of the loop."""
    links = (socket(5, 700, 701),)
    blocked = thread(
        MAIN,
        "threading.py:wait",
        "concurrent/futures/_base.py:result",
        "train.py:get:62",
        *EVENT_LOOP,
        waits=WaitedOn("futex", "futex"),
        still_s=40.0,
    )
    reads = WaitedOn("pipe-read", "read", ("socket:[700]",))
    answers = thread(101, "data.py:answers:5", name="answers", waits=reads, still_s=40.0)
    gateway = main(fds=fds(5, links=links), threads=[blocked, answers], segments=())
    asks = WaitedOn("socket-read", "read", ("socket:[701]",))
    model = child(asks, "data.py:serve:16", still_s=40.0, links=(socket(5, 701, 700),))

    finding = only(no_progress.check, snapshot_of(gateway, model))

    assert finding.severity is Severity.WARNING
    assert "the event loop of main (100) is blocked at train.py:62 get" in finding.summary


def test_a_process_that_tries_for_a_lock_file_again_and_again_makes_no_progress() -> None:
    sleeps = WaitedOn("timer", "clock_nanosleep", timeout_s=0.1)
    stack = ("torch/utils/file_baton.py:wait", "data.py:load_ops:48")
    tries = {Activity("waiting", "a lock file", "lock"): 1.0}

    def stalled(*frames: str) -> float | None:
        waits = thread(CHILD, *frames, waits=sleeps, still_s=0.1)
        job = snapshot_of(main(), process(CHILD, role="spawned", segments=(), threads=[waits]))
        index = Index(with_shares(job, p300=tries), history())
        return stalled_s(index.snapshot.processes[1], index)

    assert stalled(*stack) == 60.0
    assert stalled("data.py:load_ops:48") == 0.1


SIGCHLD = 1 << 16
LOOP = Statement(55, "if not alive: return")


def supervised(
    *more: Process, caught: int | None = SIGCHLD, sleeps: str = "0.5", ends: Statement | None = LOOP
) -> list[Finding]:
    """The findings about a supervisor that has slept at one line for a minute."""
    root = main(
        signals_caught=caught,
        threads=[thread(MAIN, "train.py:run:58", waits=WaitedOn("timer", "clock_nanosleep"))],
    )
    source = (
        SourceLine(
            "/home/me/train.py",
            58,
            "run",
            Statement(58, f"time.sleep({sleeps})"),
            until_exits=ends,
        ),
    )
    asleep = Activity("sleeping", place="train.py:58 run")
    job = replace(
        with_shares(snapshot_of(root, *more), **{f"p{MAIN}": {asleep: 1.0}}),
        source=source,
        marks=(Mark("reap", "/home/me/train.py", "_collect", "", Statement(26, "os.waitpid(-1)")),),
    )
    return [each for each in found(no_progress.check, job) if each.subject == "reaped"]


def shard(**how: Any) -> Process:
    return process(300, "spawned", label="shard", ended=exited(300, at_s=NOW_S - 50, **how))


def test_a_supervisor_whose_children_were_reaped_by_its_handler_is_reported_so() -> None:
    (finding,) = supervised(shard(exit_code=0))

    assert finding.severity is Severity.CRITICAL
    assert "has none left" in finding.summary
    assert "in a loop that ends by `if not alive: return` of line 55" in " ".join(finding.evidence)
    assert "`os.waitpid(-1)` at train.py:26 _collect takes that of every child" in finding.cause


@pytest.mark.parametrize(
    "healthy",
    [
        {"caught": 0},
        {"ends": None},
        {"sleeps": "30"},
    ],
)
def test_a_loop_that_may_still_notice_the_exits_is_not_reported(healthy: dict[str, Any]) -> None:
    assert supervised(shard(exit_code=0), **healthy) == []


def test_a_supervisor_with_a_child_left_or_without_one_so_far_is_not_reported() -> None:
    assert supervised() == []
    assert supervised(shard(exit_code=0), process(301, "spawned", label="shard 1")) == []


LOADER = 305
FILLS = "while self.replay.size() < self.config.least:"


def filling(
    asleep_s: float, *numbers: tuple[str, int], header: str = FILLS, last: int = 28, bounds: int = 1
) -> tuple[Snapshot, History]:
    """A child that waits until a buffer is filled by another one, which works."""
    learner = child(TRIES, "train.py:learn:28", still_s=0.1)
    actor = process(LOADER, "spawned", label="actor", threads=[thread(LOADER, "actor.py:run:9")])
    names = ("self.replay", "self.config.least")
    here = SourceLine(
        "/home/me/train.py",
        28,
        "learn",
        Statement(28, "time.sleep(1)"),
        within=(Statement(27, header),),
        deciders=(Decider(Statement(27, header), last, names),),
    )
    window = Mark(
        "bounded",
        "/home/me/replay.py",
        "<module>",
        "deque config.window",
        Statement(10, "self.games = deque(maxlen=config.window)"),
    )
    values = tuple(NameValue(name, "int", number) for name, number in numbers)
    frame = FrameValues(CHILD, "/home/me/train.py", "learn", 28, values)
    snapshot = replace(
        with_account(main(), learner, asleep_s, actor),
        source=(here,),
        marks=(window,) * bounds,
        values=(ValuesRead(pid(CHILD), NOW_S, "hook", (frame,)),) if values else (),
    )
    return snapshot, history(
        {(LOADER, "cpu_percent"): line(90.0), (CHILD, "cpu_percent"): line(0.1)}
    )


def test_a_loop_that_waits_for_more_than_is_kept_never_ends() -> None:
    numbers = ("self.config.least", 750), ("self.config.window", 500)

    finding = only(no_progress.check, *filling(45.0, *numbers))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "spawned (300) has only slept and checked again at train.py:28 learn for 45 s, in "
        f"`{FILLS}` of line 27"
    )
    assert "actor (305) works" in finding.evidence
    assert (
        "self.config.least is 750, config.window is 500. The loop waits for more" in finding.cause
    )
    assert "replay.py:10" in finding.cause


def test_a_loop_that_waits_for_less_than_is_kept_is_filled_some_time() -> None:
    numbers = ("self.config.least", 400), ("self.config.window", 500)

    finding = only(no_progress.check, *filling(45.0, *numbers))

    assert finding.severity is Severity.INFO
    assert "Nothing is wrong if the others bring that about" in finding.cause
    assert "window" not in finding.cause


def test_without_values_the_bound_is_a_condition() -> None:
    finding = only(no_progress.check, *filling(45.0))

    assert finding.severity is Severity.INFO
    assert "if the loop waits for more than that, it never ends" in finding.cause


@pytest.mark.parametrize(
    ("asleep_s", "header", "last"),
    [
        (25.0, FILLS, 28),
        (45.0, "while not self.stop_event.is_set():", 28),
        (45.0, "while time.monotonic() < deadline:", 28),
        (45.0, "while True:", 28),
        (45.0, FILLS, 40),
    ],
)
def test_a_loop_that_is_young_or_waits_for_its_time_or_does_something_is_quiet(
    asleep_s: float, header: str, last: int
) -> None:
    assert found(no_progress.check, *filling(asleep_s, header=header, last=last)) == []


CHUNKED = SourceLine(
    "/home/me/data.py",
    15,
    "read_request",
    Statement(15, "data = conn.recv(CHUNK)"),
    within=(Statement(14, "while True:"),),
    ends=(Statement(16, "if not data: break"), Statement(19, "if len(data) < CHUNK: break")),
)


def connection(*source: SourceLine, both: bool = True, for_s: float = 40.0) -> Snapshot:
    """Main waits for an answer; a thread of the server waits for the rest of the request."""
    asks = WaitedOn("socket-read", "recvfrom", ("socket:[91]",), (3,))
    takes = WaitedOn("socket-read", "recvfrom", ("socket:[92]",), (5,))
    listener = socket(4, 88, None, "tcp listens on 127.0.0.1:4000")
    ends = socket(3, 91, 92, "tcp 1.1.1.1:9 > 1.1.1.1:4000"), socket(5, 92, 91, "tcp served")
    own = main(
        fds=fds(5, links=ends[:1]),
        threads=[thread(MAIN, "train.py:ask:7", waits=asks, still_s=for_s)],
    )
    serves = thread(CHILD, "data.py:serve:29", waits=ACCEPTS, still_s=for_s)
    reads = thread(
        CHILD + 1,
        "data.py:read_request:15",
        waits=takes if both else WaitedOn("futex", "futex"),
        still_s=for_s,
    )
    links = fds(5, links=[listener, ends[1]])
    server = process(CHILD, "spawned", label="index", threads=[serves, reads], fds=links)
    return replace(snapshot_of(own, server), source=source)


def test_a_connection_of_which_both_ends_are_read_is_named_with_the_end_of_the_loop() -> None:
    finding = only(no_progress.check, connection(CHUNKED))

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        f"this job has made no progress for 40 s: main ({MAIN}) and index (300) each wait for the "
        "other one to send"
    )
    assert "`data = conn.recv(CHUNK)` (data.py:15) is repeated until" in finding.cause
    assert "`if len(data) < CHUNK: break` of line 19" in finding.cause
    assert "Send the length of each message first" in finding.advice


def test_without_a_short_read_it_is_not_said_which_side_is_at_fault() -> None:
    plain = replace(CHUNKED, ends=CHUNKED.ends[:1])

    for source in ((), (plain,)):
        finding = only(no_progress.check, connection(*source))
        assert finding.severity is Severity.INFO
        assert "whose turn it is" in finding.cause


def test_a_server_whose_thread_waits_for_something_else_does_not_read_the_connection() -> None:
    finding = only(no_progress.check, connection(CHUNKED, both=False))

    assert "waits for something to do" in finding.summary


@pytest.mark.parametrize(("main_s", "waiters"), [(3.0, 1), (30.0, 2)])
def test_a_process_that_has_just_begun_to_wait_does_not_wait_as_long_as_another(
    main_s: float, waiters: int
) -> None:
    """Main gets an item every few seconds from the one for which the other waits."""
    reads = WaitedOn("pipe-read", "read", ("pipe:[501]",))
    other = process(
        301,
        "spawned",
        label="standby",
        fds=fds(5, links=[pipe(3, 501, False)]),
        segments=(),
        threads=[thread(301, "data.py:lead:16", waits=reads, still_s=40.0)],
    )
    sleeps = child(still_s=40.0, links=(pipe(5, 501, True),))

    finding = only(no_progress.check, snapshot_of(waiting(main_s), sleeps, other))

    assert (finding.process == pid(301)) is (waiters == 1)
    assert f"waited {40 if waiters == 1 else 30} s" in finding.summary


def test_of_several_deques_with_one_bound_the_first_is_named() -> None:
    snapshot, past = filling(45.0)
    (window,) = snapshot.marks
    line_11 = "self.priorities = deque(maxlen=config.window)"
    other = window._replace(statement=Statement(11, line_11))

    for marks in ((window, other), (other, window)):
        finding = only(no_progress.check, replace(snapshot, marks=marks), past)
        assert "replay.py:10" in finding.cause
    two_bounds = (window, other._replace(about="deque config.least"))
    finding = only(no_progress.check, replace(snapshot, marks=two_bounds), past)
    assert "deque" not in finding.cause
