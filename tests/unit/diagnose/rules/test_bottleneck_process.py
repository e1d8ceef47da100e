"""A busy process whose answers others wait for, and processes that only look like one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.throughput.bottleneck_process import check
from mpwatch.model.account import COPYING, JOB_WORKS, NO_CORE, Activity, ActivityKind
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History, Point, ProcessMetric
from mpwatch.model.progress import BUCKET_S, Counts, ProgressSource
from mpwatch.model.samples import ThreadSample, WaitedOn
from mpwatch.model.snapshot import GpuUse, Hook, Process, Snapshot
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import (
    COMPUTES,
    IN_A_CONDITION,
    JOINS,
    SLEEPS,
    answers_from,
    with_shares,
)
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    WALL_S,
    accounted,
    cpu,
    fds,
    found,
    history,
    line,
    main,
    only,
    pid,
    pipe,
    process,
    snapshot_of,
    socket,
    thread,
)

SERVER = 150
CLIENTS = (200, 201, 202, 203)


def client(number: int, *stack: str, role: Any = "spawned", parent: int = MAIN) -> Process:
    """A process that waits for an answer on a socket to the server."""
    wait = WaitedOn("socket-read", "read", (f"socket:[{number}]",), (5,))
    asks = thread(number, *(stack or ("connection.py:_recv", "train.py:ask:31")), waits=wait)
    links = [socket(5, number, 1000 + number)]
    return process(number, role, threads=[asks], fds=fds(9, 1024, links), parent=parent)


def job(*clients: Process, **host: Any) -> Snapshot:
    links = [socket(10 + n, 1000 + n, n) for n in CLIENTS]
    server = process(
        SERVER, "spawned", threads=[thread(SERVER, "train.py:answer:9")], fds=fds(9, 1024, links)
    )
    return snapshot_of(main(fds=fds(9, 1024, [])), server, *clients, usable_cpus=8, **host)


def past(busy: float = 95.0, own: float = 10.0, share: float = 0.7) -> History:
    loads = cpu(main=1, **{f"w{SERVER}": busy}, **{f"w{n}": own for n in CLIENTS}).processes
    waits = {
        (number, "answer_wait"): [
            point._replace(value=float(n % 10 < 10 * share)) for n, point in enumerate(line(1.0))
        ]
        for number in CLIENTS
    }
    return History({**loads, **history(waits).processes}, {}, 0.0)  # type: ignore[arg-type]


def test_a_busy_process_that_others_wait_for_is_the_bottleneck() -> None:
    seen = with_shares(job(*map(client, CLIENTS)), **{f"p{SERVER}": {COMPUTES: 1.0}})

    finding = only(check, seen, past())

    assert finding.severity is Severity.INFO
    assert finding.process == pid(SERVER)
    assert finding.summary.startswith("4 processes wait for the answers of spawned 150 (150)")
    assert "2.9 of them wait for its answer at any moment" in finding.evidence[0]
    assert "95% of a core" in finding.evidence[1]
    assert "spawned 200 (200) asks at train.py:31 ask" in finding.evidence
    assert "spawned 150 (150) is at train.py:9 answer" in finding.evidence
    assert "Manager" not in finding.cause


@pytest.mark.parametrize("does", [JOINS, IN_A_CONDITION])
def test_the_line_of_a_main_thread_that_waits_while_others_answer_is_not_told(
    does: Activity,
) -> None:
    seen = with_shares(job(*map(client, CLIENTS)), **{f"p{SERVER}": {does: 1.0}})

    finding = only(check, seen, past())

    assert "spawned 150 (150) is at" not in " ".join(finding.evidence)


TWO_WRITES = Mark(
    "two-writes", "/app/server.py", "respond", "", Statement(70, "self.wfile.write(data)")
)


AWAITS_CLIENTS = Activity("idle", "a client of tcp 127.0.0.1:8")


def round_trips(
    target: str = "tcp 127.0.0.1:9 > 127.0.0.1:8",
    server: Mapping[Activity, float] = MappingProxyType({AWAITS_CLIENTS: 1.0}),
    **more: Any,
) -> Snapshot:
    """Clients that wait for a server which is idle."""
    waits = Activity("waiting", f"data on {target}", "socket", (pid(SERVER),), "train.py:31 ask")
    clients = [
        replace(each, threads=tuple(replace(t, still_s=0.1) for t in each.threads))
        for each in map(client, CLIENTS)
    ]
    taken = job(*clients)
    seen = {f"p{n}": {waits: 0.9, SLEEPS: 0.1} for n in CLIENTS}
    seen[f"p{SERVER}"] = dict(server)
    return replace(with_shares(taken, p100={SLEEPS: 1.0}, **seen), **more)


def with_waits(past: History, per_s: float) -> History:
    """The clients wait so often in a second."""
    waits = history({(n, "voluntary_switches"): line(0.0, per_s) for n in CLIENTS})
    return History({**past.processes, **waits.processes}, {}, 0.0)


def test_answers_of_an_idle_server_that_writes_in_two_parts_are_held_back() -> None:
    quiet = past(busy=4.0, own=3.0, share=0.9)

    finding = only(check, round_trips(marks=(TWO_WRITES,)), quiet)

    assert finding.subject == "held back"
    assert "wait 90% of the time for answers of spawned 150 (150), and neither side works" in (
        finding.summary
    )
    assert finding.cause.startswith(
        "`self.wfile.write(data)` at server.py:70 respond is the second"
    )
    assert found(check, round_trips(), quiet) == []
    assert found(check, round_trips("socket 77", marks=(TWO_WRITES,)), quiet) == []
    busy = past(busy=40.0, own=3.0, share=0.9)
    assert found(check, round_trips(marks=(TWO_WRITES,)), busy) == []
    asleep = round_trips(server={SLEEPS: 1.0}, marks=(TWO_WRITES,))
    assert found(check, asleep, quiet) == []  # it delays its answers itself


@pytest.mark.parametrize(("per_s", "is_told"), [(2.0, False), (22.0, True), (400.0, False)])
def test_round_trips_that_are_held_back_have_the_pace_of_delayed_acknowledgements(
    per_s: float, is_told: bool
) -> None:
    seen = round_trips(marks=(TWO_WRITES,))

    findings = found(check, seen, with_waits(past(busy=4.0, own=3.0, share=0.9), per_s))

    assert len(findings) == is_told
    if is_told:
        assert not findings[0].is_doubtful
        assert "each of these waits some 22 times a second" in findings[0].evidence[0]
        assert "in two parts at server.py:70 respond" in findings[0].summary


def test_a_thread_of_the_server_for_each_connection_that_receives_all_the_time() -> None:
    got = Activity("waiting", "data on tcp 127.0.0.1:8 > 127.0.0.1:9", "socket", (pid(200),))
    seen = round_trips(server={got: 1.0}, marks=(TWO_WRITES,))
    other = round_trips(server={got._replace(providers=(pid(9),)): 1.0}, marks=(TWO_WRITES,))
    quiet = past(busy=4.0, own=3.0, share=0.9)

    assert only(check, seen, quiet).subject == "held back"
    assert found(check, other, quiet) == []  # it waits for another server


def test_a_process_that_has_answered_nobody_for_long_is_no_bottleneck() -> None:
    assert found(check, job(*map(client, CLIENTS)), past(share=1.0, own=0.0)) == []
    [first, *rest] = map(client, CLIENTS)
    answered = replace(first, threads=(replace(first.threads[0], waits_s=0.2),))
    assert len(found(check, job(answered, *rest), past(share=1.0, own=0.0))) == 1


GETS = (
    "selectors.py:select",
    "multiprocessing/connection.py:poll",
    "multiprocessing/queues.py:get",
    "train.py:gather:48",
)


def collecting(
    second: int,
    *,
    timeout_s: float | None = 0.7,
    worker: str = "waits",
    still_s: float = 1.0,
    source: tuple[SourceLine, ...] = (),
) -> Snapshot:
    """Main that waits for an item of a queue, and a worker that waits for its next task."""
    limit = WaitedOn("poll", "poll", ("pipe:[77]",), (4,), timeout_s=timeout_s)
    gets = thread(MAIN, *GETS, waits=limit, stack_age_s=0.0)
    order = WaitedOn("pipe-read", "read", ("pipe:[88]",), (6,))
    own = ("connection.py:_recv", "train.py:collect:15")
    recv = thread(200, *own, waits=order, stack_age_s=0.0, still_s=still_s)
    if worker == "works":
        recv = thread(200, state="R")
    if worker == "sleeps":
        recv = thread(200, waits=WaitedOn("timer", "clock_nanosleep"))
    return snapshot_of(
        main(threads=[gets], fds=fds(9, links=[pipe(4, 77, False), pipe(5, 88, True)])),
        process(
            200,
            "spawned",
            threads=[recv],
            fds=fds(9, links=[pipe(6, 88, False), pipe(7, 77, True)]),
        ),
        at_s=NOW_S - 40 + second,
        source=source,
    )


def test_time_lost_in_waits_with_a_limit_while_no_process_works_is_reported() -> None:
    job = accounted(*(collecting(n, worker="works" if n % 4 < 2 else "waits") for n in range(40)))

    finding = only(check, job)

    assert finding.process == pid(MAIN)
    assert finding.summary.startswith(
        "main (100) waits with a time limit at train.py:48 gather while no process of the job "
        "works, for 51% of the time"
    )
    assert finding.is_doubtful
    assert finding.advice.startswith("Nothing is wrong if the job waits for requests")
    assert "at most 2.1 times as fast" in finding.evidence[-1]


def test_a_job_that_only_begins_to_work_now_has_lost_all_the_time() -> None:
    waits = accounted(*(collecting(n) for n in range(40)))
    account = waits.account
    assert account.job is not None
    so_far = account.job.counted(account.at_s, account.readings, None, 1)
    begins = replace(account, job=so_far._replace(now=JOB_WORKS))

    finding = only(check, replace(waits, account=begins))

    assert "for 100% of the time" in finding.summary
    assert "at most 50 times as fast" in finding.evidence[-1]


@pytest.mark.parametrize(
    ("worker", "more"),
    [("works", {}), ("sleeps", {}), ("waits", {"timeout_s": None}), ("waits", {})],
    ids=["it works", "it may be at work", "a wait without a limit", "a hang"],
)
def test_a_wait_with_a_limit_is_not_lost_time_while_a_process_works_or_if_it_never_ends(
    worker: str, more: dict[str, Any]
) -> None:
    job = accounted(*(collecting(n, worker=worker, **more) for n in range(40)))

    assert found(check, job) == []


def test_a_main_that_looks_after_its_children_from_time_to_time_loses_no_time() -> None:
    """It waits for their ends, or they have stood still for long, which other rules name."""

    def told(text: str = "item = results.get(timeout=0.7)", still_s: float = 1.0) -> int:
        line = SourceLine("/home/me/train.py", 48, "gather", Statement(48, text))
        steps = ("works" if n % 4 < 2 else "waits" for n in range(40))
        job = accounted(
            *(
                collecting(n, worker=each, still_s=still_s, source=(line,))
                for n, each in enumerate(steps)
            )
        )
        return len(found(check, job))

    assert told() == 1
    assert told("wait([p.sentinel for p in procs], timeout=1.0)") == 0
    assert told(still_s=30.0) == 0


FULL = "while len(batch) < self.batch_size:"


def serving(second: int, *, clients: bool = True, source: tuple[SourceLine, ...] = ()) -> Snapshot:
    """A worker that collects a batch, and a main process that sleeps beside its threads."""
    works = second % 8 == 0
    limit = WaitedOn("poll", "poll", ("pipe:[77]",), (4,), timeout_s=1.7)
    gets = (*GETS[:3], "train.py:next_batch:37")
    takes = thread(200, *gets, waits=limit, stack_age_s=0.0)
    answer = WaitedOn("pipe-read", "read", ("pipe:[88]",), (6,))
    threads = [
        thread(MAIN, "train.py:run:81", waits=WaitedOn("timer", "sleep"), stack_age_s=0.0),
        thread(101, "connection.py:_recv", "train.py:collect:45", waits=answer, stack_age_s=0.0),
        *(
            thread(
                n,
                "threading.py:wait",
                "train.py:predict:58",
                waits=WaitedOn("futex", "futex", ("0x7f00",)),
                stack_age_s=0.0,
            )
            for n in ((102, 103) if clients else ())
        ),
    ]
    return snapshot_of(
        main(threads=threads, fds=fds(9, links=[pipe(6, 88, False), pipe(5, 77, True)])),
        process(
            200,
            "spawned",
            threads=[thread(200, state="R") if works else takes],
            fds=fds(9, links=[pipe(4, 77, False), pipe(7, 88, True)]),
        ),
        at_s=NOW_S - 40 + second,
        source=source,
    )


def test_a_batch_that_waits_until_its_time_limit_is_reported_with_its_loop() -> None:
    statement = Statement(37, "batch.append(self.jobs.get(timeout=left))")
    loop = SourceLine("/home/me/train.py", 37, "next_batch", statement, (Statement(32, FULL),))

    finding = only(check, accounted(*(serving(n, source=(loop,)) for n in range(41))))

    assert finding.subject == "pauses"
    assert "waits with a time limit at train.py:37 next_batch while no process" in finding.summary
    assert finding.cause.startswith(
        f"The loop `{FULL}` of line 32 collects self.batch_size items, and fewer come"
    )
    assert finding.advice.startswith("Wait a few milliseconds for more items")


def test_a_main_process_that_sleeps_alone_may_be_at_work() -> None:
    assert found(check, accounted(*(serving(n, clients=False) for n in range(41)))) == []


def learning(second: int) -> Snapshot:
    """Main that computes, and two children that wait for it, each on a socket."""
    learns = thread(MAIN, "train.py:update:30", state="R", stack_age_s=0.1, cpu_percent=95.0)
    own = main(threads=[learns], fds=fds(9, links=[socket(4, 1200, 200), socket(5, 1201, 201)]))
    own = replace(
        own, sample=replace(own.sample, threads=(ThreadSample(MAIN, "p", "R", 95 * second),))
    )
    return snapshot_of(own, *(client(n) for n in (200, 201)), at_s=NOW_S - 60 + second)


def switching(per_round: float) -> History:
    """Two children whose switches become rarer: each second a round takes so much longer."""
    counts, count, round_s = [], 0.0, 0.2
    for second in range(61):
        counts.append(Point(NOW_S - 60 + second, count))
        count += 5 / round_s
        round_s += per_round
    return history(
        {
            (MAIN, "cpu_percent"): line(95.0, 0, 60),
            (200, "voluntary_switches"): counts,
            (201, "voluntary_switches"): counts,
        }
    )


def test_rounds_that_take_ever_more_cpu_time_are_reported() -> None:
    job = accounted(*(learning(n) for n in range(61)))

    finding = only(check, job, switching(0.01))

    assert finding.process == pid(MAIN)
    assert "needs ever more cpu time for each round at train.py:30 update" in finding.summary
    assert "2 processes wait for it 100% of the time" in finding.summary
    assert "goes through at train.py:30 update" in finding.advice
    assert found(check, job, switching(0.0)) == []
    assert found(check, job, switching(0.001)) == []


def test_a_process_that_sleeps_between_its_rounds_delays_nobody_by_its_cpu_time() -> None:
    job = accounted(*(learning(n) for n in range(61)))
    waits = {
        Activity("waiting", "data on pipe 9", "pipe", (pid(MAIN),), "train.py:work:9"): 0.9,
        SLEEPS: 0.1,
    }
    computes = Activity("computing", place="train.py:30 update")

    def seen(**main_does: float) -> list[Finding]:
        own = {computes: main_does["computes"], SLEEPS: 1 - main_does["computes"]}
        return found(check, with_shares(job, p100=own, p200=waits, p201=waits), switching(0.01))

    assert seen(computes=0.03) == []
    assert seen(computes=0.3) == []
    (finding,) = seen(computes=0.8)
    assert finding.subject == "rounds"


def test_a_server_that_waits_for_its_clients_does_not_wait_for_its_parent() -> None:
    job = accounted(*(learning(n) for n in range(61)))
    serves = thread(202, "socketserver.py:serve_forever", "main.py:origin_main:16")
    server = process(202, "spawned", threads=[serves])
    job = replace(job, processes=(*job.processes, server))
    idle = {Activity("idle", "a client of tcp 127.0.0.1:44441", "socket"): 1.0}
    waits = {Activity("waiting", "data on pipe 9", "pipe", (pid(MAIN),)): 1.0}
    computes = {Activity("computing", place="train.py:30 update"): 1.0}
    taken = with_shares(job, p100=computes, p200=waits, p201=waits, p202=idle)
    series = {
        **switching(0.01).processes,
        **history({(202, "voluntary_switches"): counts(1.0)}).processes,
    }

    (finding,) = found(check, taken, History(series, {}, 0.0))

    assert "2 processes wait for it 100% of the time" in finding.summary
    assert "spawned 202" not in "".join(finding.evidence)


def counts(*per_s: float) -> list[Point]:
    """A count over a minute, at these rates in successive parts of it, all equally long."""
    points, count = [], 0.0
    for second in range(61):
        points.append(Point(NOW_S - 60 + second, count))
        count += per_s[min(len(per_s) - 1, second * len(per_s) // 60)]
    return points


def slowing(
    read: Sequence[float],
    written: Sequence[float] = (),
    *,
    works: float = 0.9,
    hook: str = "none",
    kind: ActivityKind = "computing",
    percent: float = 90.0,
    gpus: tuple[GpuUse, ...] = (),
) -> list[Finding]:
    """What is found of a worker that uses a core, by what it reads and writes a second."""
    state: Any = hook
    more = {"gpus": gpus}
    busy = process(200, "spawned", threads=[thread(200)], hook=Hook(state), more=more)
    computes = Activity(kind, place="data.py:9 check")
    seen = with_shares(snapshot_of(main(), busy), p200={computes: works, JOINS: 1 - works})
    series: dict[tuple[int, ProcessMetric], Sequence[Point]] = {
        (200, "cpu_percent"): line(percent, 0, 60),
        (200, "main_read_bytes"): counts(*read),
    }
    if written:
        series[200, "written_bytes"] = counts(*written)
    return found(check, seen, history(series))


FALLS = (6000.0, 5200.0, 4600.0, 4100.0, 3700.0, 3400.0, 3100.0, 2900.0)
RISES = (4e6, 5e6, 6e6, 7e6, 8e6, 9e6, 10e6, 11e6)


def test_items_that_take_ever_more_cpu_time_are_reported_with_the_numbers() -> None:
    (finding,) = slowing(FALLS)

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        "spawned 200 (200) slows down steadily: it needs ever more cpu time for its items at "
        "data.py:9 check, 1.7 times as much as 60 s before"
    )
    assert "in quarters of 60 s: 1.00, 1.19, 1.46, 1.74 (the first one is 1)" in finding.evidence[0]
    assert "a list that is searched" in finding.cause


def test_a_file_that_is_read_again_from_its_start_is_reported_by_what_is_read_for_the_output() -> (
    None
):
    (finding,) = slowing(RISES, (1e4,))

    assert "it reads ever more for its output at data.py:9 check, 2.3 times" in finding.summary
    assert "a file that is read from its start each time" in finding.cause


@pytest.mark.parametrize(
    "findings",
    [
        pytest.param(slowing((5000.0,)), id="as fast as before"),
        pytest.param(slowing((6000.0, 6000.0, 3000.0, 3000.0)), id="another phase"),
        pytest.param(slowing(FALLS[::-1]), id="a warm-up"),
        pytest.param(slowing((6000.0, 5000.0, 5200.0, 3000.0)), id="not steadily"),
        pytest.param(slowing(FALLS, works=0.4), id="it mostly waits"),
        pytest.param(slowing(FALLS, kind="sleeping"), id="it mostly sleeps"),
        pytest.param(slowing(FALLS, percent=2.0), id="it uses hardly any cpu time"),
        pytest.param(slowing(FALLS, gpus=(GpuUse(0, 1),)), id="it may poll for the GPU"),
        pytest.param(slowing(RISES, RISES), id="it writes more as well"),
        pytest.param(slowing(RISES, (1e4,), hook="ready"), id="its hook writes"),
        pytest.param(slowing((4e3, 5e3, 6e3, 7e3), (10.0,)), id="it reads little"),
        pytest.param(slowing((4e6, 5e6, 6e6, 7e6), (3e6,)), id="it writes what it reads"),
    ],
)
def test_work_that_changes_otherwise_does_not_slow_down_steadily(findings: list[Finding]) -> None:
    assert findings == []


def test_a_manager_is_called_one_where_stacks_show_it() -> None:
    stack = ("connection.py:_recv", "managers.py:_callmethod", "<string>:get", "train.py:ask:31")

    finding = only(check, job(*(client(n, *stack) for n in CLIENTS)), past())

    assert "the Manager spawned 150 (150)" in finding.summary
    assert "proxy" in finding.cause
    assert "update()" in finding.advice


PROXY = ("connection.py:_recv", "managers.py:_callmethod")


def asking(
    place: str, waits: float, copies: float = 0.0, core: float = 0.0
) -> dict[Activity, float]:
    """The shares of a client that asks the server at one line."""
    found = {answers_from(SERVER, place): waits, Activity("waiting", "a free core", "core"): core}
    if copies:
        found[Activity("computing", COPYING, place=place)] = copies
    return {**found, Activity("sleeping"): 1 - waits - copies - core}


def switches(per_s: float, *, tracers_per_s: float = 0.0, number: int = 200) -> dict[Any, Any]:
    """Switches of a process that gives up its core so often, and those that tracers caused."""
    return {
        (number, "voluntary_switches"): [Point(NOW_S - 60 + n, per_s * n) for n in range(61)],
        (number, "tracer_wakes"): [Point(NOW_S - 60 + n, tracers_per_s * n) for n in range(61)],
    }


def test_the_line_that_asks_most_often_is_named_and_not_the_one_that_waits_longest() -> None:
    reads = client(200, *PROXY, "<string>:__getitem__", "train.py:sample:26")
    writes = [client(n, *PROXY, "<string>:append", "train.py:add:16") for n in CLIENTS[1:]]
    snapshot = with_shares(
        job(reads, *writes),
        p200=asking("train.py:26 sample", 0.3, copies=0.2),
        **{f"p{n}": asking("train.py:16 add", 0.9) for n in CLIENTS[1:]},
    )
    rates: dict[Any, Any] = switches(3000, number=200)
    for number in CLIENTS[1:]:
        rates |= switches(20, number=number)
    numbers = History({**past().processes, **history(rates).processes}, {}, 0.0)

    finding = only(check, snapshot, numbers)

    assert finding.summary.endswith("it is the bottleneck, asked mostly at train.py:26 sample")
    assert finding.evidence[2] == (
        "spawned 200 (200) asks at train.py:26 sample: that takes 50% of the time, with about "
        "3000 waits a second"
    )
    assert "ask at train.py:16 add: that takes up to 90% of the time" in finding.evidence[3]
    assert "train.py:26 sample calls __getitem__ of a proxy" in finding.cause
    assert finding.advice.index("proxy[:]") < finding.advice.index("extend()")


def test_waits_that_tracers_cause_are_no_requests() -> None:
    snapshot = with_shares(
        job(*map(client, CLIENTS)),
        p200=asking("train.py:26 sample", 0.9),
        p201=asking("train.py:16 add", 0.9),
    )
    rates = switches(500, tracers_per_s=490, number=200) | switches(30, number=201)
    numbers = History({**past().processes, **history(rates).processes}, {}, 0.0)

    assert "at train.py:16 add" in only(check, snapshot, numbers).evidence[2]


@pytest.mark.parametrize(
    ("method", "per_s", "told"),
    [("__getitem__", 200, 1), ("__getitem__", 2, 0), ("get", 200, 0)],
    ids=["again and again", "a long answer", "may wait in the manager"],
)
def test_round_trips_to_a_manager_take_time_also_if_it_gets_no_core(
    method: str, per_s: float, told: int
) -> None:
    asks = [client(n, *PROXY, f"<string>:{method}", "train.py:length:23") for n in CLIENTS]
    shown = {f"p{n}": asking("train.py:23 length", 0.7) for n in CLIENTS}
    rates: dict[Any, Any] = {}
    for number in CLIENTS:
        rates |= switches(per_s, number=number)
    numbers = History({**past(busy=5).processes, **history(rates).processes}, {}, 0.0)

    findings = found(check, with_shares(job(*asks), **shown), numbers)

    assert len(findings) == told
    for each in findings:
        assert each.summary == (
            "4 processes wait for the answers of the Manager spawned 150 (150), in one round trip "
            "after the other, asked at train.py:23 length"
        )
        assert "is busy" not in each.cause + each.summary
        assert "proxy[:]" in each.advice


def sparse(every_s: float, share: float) -> History:
    """As `past`, with few readings, as on a loaded machine."""
    numbers = past(busy=45, share=share)
    kept = {
        key: [point for n, point in enumerate(points) if n % int(every_s) == 0]
        for key, points in numbers.processes.items()
    }
    return History(kept, {"runnable": [Point(NOW_S - n, 9.0) for n in range(30, 0, -1)]}, 0.0)


def test_a_loaded_machine_hides_no_bottleneck() -> None:
    """Few readings, a moment at which little runs, and clients that wait for cores as well."""
    of_core = {f"p{n}": asking("routes.py:23 length", 0.3, core=0.55) for n in CLIENTS}
    snapshot = with_shares(job(*map(client, CLIENTS), runnable=2), **of_core)

    assert only(check, snapshot, sparse(3, 0.2)).process == pid(SERVER)
    assert found(check, job(*map(client, CLIENTS), runnable=2), sparse(3, 0.2)) == []


def test_clients_that_are_running_at_this_moment_count_by_their_connections() -> None:
    asks = client(200)
    others = [
        process(
            n,
            "spawned",
            threads=[thread(n, "train.py:ask:31", state="R")],
            fds=fds(9, 1024, [socket(5, n, 1000 + n)]),
        )
        for n in CLIENTS[1:]
    ]

    finding = only(check, job(asks, *others), past())

    assert finding.summary.startswith("4 processes")


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(past(busy=20), id="the server is idle"),
        pytest.param(past(own=80), id="the clients are as busy"),
        pytest.param(past(share=0.1), id="the clients hardly ever wait"),
        pytest.param(past(share=0.2), id="on average nobody waits"),
        pytest.param(cpu(w150=95), id="nobody was found waiting"),
    ],
)
def test_a_busy_process_is_no_bottleneck_while_no_process_waits(numbers: History) -> None:
    assert found(check, job(*map(client, CLIENTS)), numbers) == []


def test_a_crowded_machine_gives_no_process_a_whole_core() -> None:
    assert found(check, job(*map(client, CLIENTS)), past(busy=40)) == []
    assert len(found(check, job(*map(client, CLIENTS), runnable=12), past(busy=40))) == 1


def test_children_that_wait_for_tasks_and_ranks_are_no_clients() -> None:
    children = [client(n, parent=SERVER) for n in CLIENTS]
    ranks = [client(n, role="rank") for n in CLIENTS]

    assert found(check, job(*children), past()) == []
    assert found(check, job(*ranks), past()) == []
    assert found(check, job(client(200)), past()) == []


def test_a_main_process_that_mostly_waits_for_one_busy_process_is_reported_alone() -> None:
    asks = replace(client(200), role="main", parent=None)
    snapshot = replace(job(asks), root=asks.process)

    finding = only(check, snapshot, past())

    assert finding.process == pid(SERVER)
    assert "waits for the answers of spawned 150 (150), which is busy" in finding.summary
    assert "waits for its answers 71% of the time" in finding.evidence[0]
    assert "only one works at a time" in finding.cause


ANSWERED = [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("readings", "waits_s", "imported_ago_s", "is_told"),
    [
        ([0] * 12 + [1] * 19, 18.5, None, False),
        ([1] * 24 + [0] * 2 + [1] * 5, 4.0, None, False),
        ([1] * 8 + [0] + ANSWERED * 5 + [1, 1], 1.0, None, True),
        (ANSWERED * 7 + [1, 1, 1], 2.0, None, True),
        (ANSWERED * 7 + [1, 1, 1], 2.0, 100.0, True),
        (ANSWERED * 7 + [1, 1, 1], 2.0, 5.0, False),
        (ANSWERED * 7 + [1, 1, 1], 2.0, 0.0, False),
    ],
    ids=[
        "it waits for the first answer",
        "the first answer has come",
        "others have come after it",
        "its start was not watched",
        "it has imported long ago",
        "it has just imported",
        "it imports",
    ],
)
def test_a_process_that_starts_is_no_bottleneck(
    readings: list[int], waits_s: float, imported_ago_s: float | None, *, is_told: bool
) -> None:
    """Main waits in `ready.recv()` for a child that imports, or builds its model."""
    asks = replace(client(200), role="main", parent=None)
    asks = replace(asks, threads=(replace(asks.threads[0], waits_s=waits_s, still_s=waits_s),))
    seen = replace(job(asks), root=asks.process)
    server = seen.processes[1]
    server = replace(server, sample=replace(server.sample, born_wall_s=WALL_S - len(readings)))
    seen = replace(seen, processes=(seen.processes[0], server, *seen.processes[2:]))
    if imported_ago_s is not None:
        seen = with_shares(seen, **{f"p{SERVER}": {COMPUTES: 1.0}})
        account = seen.account.processes[pid(SERVER)]
        imported_in = int((NOW_S - imported_ago_s) // BUCKET_S)
        own = account.uncounted[0]._replace(buckets=(), imported_in=imported_in)
        known = {pid(SERVER): replace(account, uncounted=(own,))}
        seen = replace(seen, account=replace(seen.account, processes=known))
    points = [
        point._replace(value=float(value)) for point, value in zip(line(1.0), readings, strict=True)
    ]
    waits = history({(200, "answer_wait"): points})

    before = History({**past().processes, **waits.processes}, {}, 0.0)

    assert bool(found(check, seen, before)) == is_told


COMPARES = "if all(row[i + k] == row[n + k] for k in range(3)):"
ELEMENTS = Mark(
    "slow",
    "/home/me/train.py",
    "repeats",
    "elements: row[i + k] == row[n + k]",
    Statement(26, COMPARES),
)


@pytest.mark.parametrize(
    ("busy", "place", "is_told"),
    [(0.8, "train.py:26 repeats", True), (0.8, "train.py:40 step", False), (0.4, None, False)],
    ids=["at that line", "elsewhere", "it waits most of the time"],
)
def test_a_process_that_compares_elements_of_a_tensor_one_by_one_is_reported(
    busy: float, place: str | None, is_told: bool
) -> None:
    where = place or "train.py:26 repeats"
    seen = SourceLine("/home/me/train.py", 26, "repeats", Statement(26, COMPARES))
    own = main(threads=[thread(MAIN, "train.py:repeats:26", "train.py:check:9", "train.py:run:5")])
    compared = snapshot_of(own, source=(seen,), marks=(ELEMENTS,))
    computes = Activity("computing", "native code", place=where)
    waits = Activity("waiting", "data on socket 77", "socket")

    findings = found(check, with_shares(compared, p100={computes: busy, waits: 1 - busy}))

    assert bool(findings) is is_told
    if is_told:
        assert findings[0].summary == (
            "main (100) spends its time at train.py:26 repeats: row[i + k] == row[n + k] takes "
            "single elements of a tensor"
        )
        assert findings[0].evidence[2] == (
            "repeats() was last called from train.py:9 check, from train.py:5 run"
        )
        assert "launches a kernel and waits" in findings[0].cause
        assert findings[0].advice.startswith("Move the tensor to the CPU once before the loop")


def test_processes_that_spend_their_time_at_one_line_are_one_finding() -> None:
    seen = SourceLine("/home/me/train.py", 26, "repeats", Statement(26, COMPARES))
    workers = [process(n, label=f"worker {n}") for n in (200, 201, 202)]
    job = snapshot_of(main(), *workers, source=(seen,), marks=(ELEMENTS,))
    computes = {Activity("computing", "native code", place="train.py:26 repeats"): 1.0}
    elsewhere = {Activity("computing", "native code", place="train.py:40 step"): 1.0}

    (finding,) = found(check, with_shares(job, p200=computes, p201=computes, p202=elsewhere))

    assert finding.summary.startswith(
        "worker 200 (200) and worker 201 (201) spend their time at train.py:26 repeats: "
    )
    assert (finding.process, finding.others) == (pid(200), (pid(201),))


def test_several_lines_that_take_long_for_the_same_reason_are_told_as_one() -> None:
    sets = "self.tree[p] = self.tree[left] + self.tree[right]"
    seen = [
        SourceLine("/home/me/train.py", 26, "repeats", Statement(26, COMPARES)),
        SourceLine("/home/me/train.py", 17, "update", Statement(17, sets)),
    ]
    other = ELEMENTS._replace(
        function="update",
        about="elements: self.tree[left] + self.tree[right]",
        statement=Statement(17, sets),
    )
    job = snapshot_of(main(), source=tuple(seen), marks=(ELEMENTS, other))

    def told(update: float, elsewhere: float) -> list[str]:
        shares = {
            Activity("computing", "native code", place="train.py:26 repeats"): 0.25,
            Activity("computing", "native code", place="train.py:17 update"): update,
            Activity("computing", "native code", place="train.py:40 step"): elsewhere,
        }
        return [each.summary for each in found(check, with_shares(job, p100=shares))]

    assert told(0.4, 0.35) == [
        "main (100) spends its time at train.py:17 update: self.tree[left] + self.tree[right] "
        "takes single elements of a tensor"
    ]
    assert told(0.1, 0.65) == []


def test_what_a_process_did_while_it_started_does_not_hide_the_line_that_takes_long() -> None:
    def at(second: int) -> Snapshot:
        place = "train.py:setup:9" if second < 30 else "train.py:repeats:26"
        busy = thread(MAIN, place, state="R", stack_age_s=0.1, cpu_percent=95.0)
        own = main(threads=[busy])
        ticks = (ThreadSample(MAIN, "p", "R", 95 * second),)
        own = replace(own, sample=replace(own.sample, threads=ticks))
        seen = SourceLine("/home/me/train.py", 26, "repeats", Statement(26, COMPARES))
        at_s = NOW_S - 60 + second
        return snapshot_of(own, at_s=at_s, source=(seen,), marks=(ELEMENTS,))

    (finding,) = found(check, accounted(*(at(n) for n in range(58))))

    assert finding.summary.startswith("main (100) spends its time at train.py:26 repeats: ")


def test_a_comprehension_counts_as_the_function_that_it_is_written_in() -> None:
    seen = SourceLine("/home/me/train.py", 26, "repeats", Statement(26, COMPARES))
    compared = snapshot_of(main(), source=(seen,), marks=(ELEMENTS,))
    spent = {
        Activity("computing", "native code", place="train.py:26 repeats"): 0.3,
        Activity("computing", "native code", place="train.py:26 <genexpr>"): 0.2,
        Activity("computing", "native code", place="train.py:40 step"): 0.4,
        Activity("waiting", "data on socket 77", "socket"): 0.1,
    }

    (finding,) = found(check, with_shares(compared, p100=spent))

    assert finding.summary.startswith("main (100) spends its time at train.py:26 repeats: ")


@pytest.mark.parametrize(
    ("work", "is_told"),
    [("train.py:54 train_step", True), ("train.py:60 train_step", False)],
    ids=["in that pass", "elsewhere"],
)
def test_ranks_that_average_in_each_pass_of_an_accumulation_are_told(
    work: str, is_told: bool
) -> None:
    mark = Mark(
        "accumulates", "/home/me/train.py", "train_step", "48, 56", Statement(54, "loss.backward()")
    )
    ranks = [process(300 + n, "rank", label=f"rank {n}") for n in range(2)]
    job = snapshot_of(main(), *ranks, marks=(mark,))
    share = {Activity("computing", "native code", place=work): 1.0}

    findings = found(check, with_shares(job, p300=share, p301=share))

    assert [each.subject for each in findings] == ["each pass"] * is_told
    if is_told:
        assert "in each round of the loop of line 48" in findings[0].summary
        assert "no_sync()" in findings[0].advice
        assert findings[0].is_doubtful


LOOPED = Mark(
    "looped-collective",
    "/home/me/train.py",
    "average",
    "all_reduce, 25-27, bucket",
    Statement(26, "dist.all_reduce(param.grad.data)"),
)
IN_LOOP = ("torch/distributed/distributed_c10d.py:all_reduce", "train.py:average:26")


def averaging(
    *stack: str,
    waits: float = 0.9,
    no_core: float = 0.0,
    elsewhere: int = 0,
    slow: float = 0.0,
    marks: tuple[Mark, ...] = (LOOPED,),
    **more: Any,
) -> Snapshot:
    """Three ranks, of which the last `elsewhere` are not in the loop, and one computes for longer.

    Args:
        stack: Of those that are in the loop.
        waits: The share of their time in waits for a condition.
        no_core: That in waits for a core.
        elsewhere: How many ranks are elsewhere.
        slow: How much more of its time the first rank computes.
        marks: What the source shows.
        more: For the snapshot.
    """
    outside = ("train.py:step:40",)
    ranks = [
        process(
            300 + n,
            "rank",
            label=f"rank {n}",
            threads=[thread(300 + n, *(outside if n >= 3 - elsewhere else stack or IN_LOOP))],
        )
        for n in range(3)
    ]
    own_lock = Activity("waiting", "a lock or condition of its own process", "lock")
    spent = {own_lock: waits, NO_CORE: no_core, COMPUTES: 1 - waits - no_core}
    shown = {f"p{300 + n}": spent for n in range(3)}
    shown["p300"] = {**spent, own_lock: waits - slow, COMPUTES: spent[COMPUTES] + slow}
    return with_shares(snapshot_of(main(), *ranks, marks=marks, **more), **shown)


def woken(per_s: float) -> History:
    return history({(300 + n, "voluntary_switches"): counts(per_s) for n in range(3)})


@pytest.mark.parametrize("no_core", [0.0, 0.5])
def test_ranks_that_reduce_tensor_by_tensor_are_told(no_core: float) -> None:
    job = averaging(waits=0.9 * (1 - no_core), no_core=no_core)

    (finding,) = found(check, job, woken(180.0))

    assert finding.subject == "each tensor"
    assert finding.summary == (
        "rank 0 (300), rank 1 (301) and rank 2 (302) wait 90% of the time or more, last seen at "
        "train.py:26 average, in one blocking all_reduce for each tensor"
    )
    assert "in the loop of line 25 over bucket" in finding.evidence[0]
    assert "_flatten_dense_tensors" in finding.advice
    assert "async_op=True at train.py:26 average" in finding.advice


def test_ranks_whose_stacks_show_other_waits_are_not_told() -> None:
    job = averaging(waits=0.9)
    other = Activity("waiting", "a lock or condition of its own process", "lock", (), "io.py:9 f")
    shown = {f"p{300 + n}": {other: 0.9, COMPUTES: 0.1} for n in range(3)}

    told = found(check, with_shares(job, **shown), woken(180.0))

    assert [each for each in told if each.subject == "each tensor"] == []


def test_collectives_that_hooks_have_counted_are_told_with_their_rate() -> None:
    def progress(per_s: int) -> tuple[ProgressSource, ...]:
        seen = Counts(int((NOW_S - 50) // 5), 5.0, [5 * per_s] * 10)
        total = 50 * per_s
        return tuple(
            ProgressSource(
                "collectives",
                pid(300 + n),
                total,
                NOW_S - 50,
                NOW_S,
                False,
                seen,
                total,
                seen,
                total,
            )
            for n in range(3)
        )

    (finding,) = found(check, averaging(progress=progress(120)), woken(1.0))

    assert finding.summary.endswith(
        "in one blocking all_reduce for each tensor, 120 collectives a second in each rank"
    )
    assert found(check, averaging(progress=progress(4)), woken(180.0)) == []


@pytest.mark.parametrize(
    ("job", "per_s"),
    [
        pytest.param(averaging(), 4.0, id="few and long"),
        pytest.param(averaging(waits=0.2), 180.0, id="little of the time"),
        pytest.param(averaging(slow=0.6), 180.0, id="for one that has more to do"),
        pytest.param(averaging(elsewhere=2), 180.0, id="most are elsewhere"),
        pytest.param(averaging(marks=()), 180.0, id="no loop over tensors"),
        pytest.param(averaging("train.py:average:26"), 180.0, id="not in a collective"),
        pytest.param(
            averaging("torch/distributed/distributed_c10d.py:all_reduce", "train.py:log:60"),
            180.0,
            id="in another one",
        ),
        pytest.param(
            averaging("torch/distributed/distributed_c10d.py:all_reduce", "train.py:average:30"),
            180.0,
            id="after the loop",
        ),
    ],
)
def test_other_collectives_are_not_called_one_by_one(job: Snapshot, per_s: float) -> None:
    assert [each for each in found(check, job, woken(per_s)) if each.subject == "each tensor"] == []
