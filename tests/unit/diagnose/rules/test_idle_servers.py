"""Servers that find nothing to do while others wait for them, and calls that fail for ever."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.diagnose.rules.throughput import pipeline_bottleneck
from mpwatch.model.account import Activity
from mpwatch.model.findings import Severity
from mpwatch.model.history import History, Point
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import IdleRound, Origin, OriginStep, Retry, SourceLine, Statement
from tests.builders.accounts import COMPUTES, with_shares
from tests.builders.snapshots import (
    MAIN,
    NOW_S,
    exited,
    fds,
    found,
    history,
    main,
    only,
    pipe,
    process,
    snapshot_of,
    socket,
    thread,
)

SERVER, OTHER = 300, 301
FILE = "/home/me/engine.py"
READS = WaitedOn("pipe-read", "read", ("pipe:[500]",))
DOZES = WaitedOn("timer", "clock_nanosleep", timeout_s=0.001)
ASLEEP = Activity("sleeping", place="engine.py:18 step")
GETS = Activity("waiting", "an item of a queue", "queue", place="train.py:7 main")
IDLE = IdleRound(
    Statement(17, "if not batch:"),
    Statement(16, "batch = self.choose()"),
    FILE,
    "choose",
    Statement(12, "chosen.append(request)"),
    Statement(9, "if self.cache.reserve(request) is None: break"),
    Statement(8, "request = self.waiting[0]"),
    "self.waiting",
    OriginStep("/home/me/cache.py", "reserve", Statement(5, "if count > self.free: return None")),
)
WORKS = thread(OTHER, "work.py:run:3", state="R", still_s=0.0)


def served(
    waited_s: float = 70.0,
    idle: IdleRound | None = IDLE,
    has_worker: bool = False,
    percent: float = 8.0,
) -> tuple[Snapshot, History]:
    """Main, which waits for what a server writes, and the server, which sleeps in its loop."""
    gets = thread(MAIN, "train.py:main:7", waits=READS, still_s=waited_s)
    own = main(fds=fds(5, links=[pipe(3, 500, False)]), segments=(), threads=[gets])
    server = process(
        SERVER,
        "spawned",
        label="server",
        fds=fds(5, links=[pipe(4, 500, True)]),
        segments=(),
        threads=[thread(SERVER, "engine.py:step:18", waits=DOZES, still_s=0.1)],
    )
    worker = process(OTHER, "spawned", label="worker", segments=(), threads=[WORKS])
    line = SourceLine(FILE, 18, "step", Statement(18, "time.sleep(0.001)"), idle=idle)
    job = snapshot_of(own, server, *([worker] if has_worker else []), source=(line,))
    job = with_shares(job, p100={GETS: 1.0}, p300={ASLEEP: 0.92, COMPUTES: 0.08})
    seconds = range(61)
    return job, history(
        {
            (SERVER, "cpu_percent"): [Point(NOW_S - 60 + n, percent) for n in seconds],
            (SERVER, "voluntary_switches"): [Point(NOW_S - 60 + n, 900.0 * n) for n in seconds],
        }
    )


def test_a_server_that_finds_nothing_to_do_is_named_with_what_holds_requests_back() -> None:
    finding = only(no_progress.check, *served())

    assert finding.severity is Severity.CRITICAL
    assert finding.summary.startswith(
        "server (300) has answered none of main (100), which has waited 70 s for it: its loop goes "
        "round, finds nothing to do and sleeps at engine.py:18 step"
    )
    assert finding.cause.startswith("Most likely the first of self.waiting is never let through")
    assert "`if count > self.free: return None` (cache.py:5)" in finding.cause
    assert "go on with the next of self.waiting in place of leaving" in finding.advice


def test_a_job_of_which_nothing_moves_is_not_said_to_run_at_the_pace_of_a_sleep() -> None:
    assert found(pipeline_bottleneck.check, *served()) == []


@pytest.mark.parametrize(
    ("waited_s", "severity"), [(10.0, None), (25.0, Severity.WARNING), (65.0, Severity.CRITICAL)]
)
def test_severity_follows_the_time_in_which_none_was_answered(
    waited_s: float, severity: Severity | None
) -> None:
    findings = found(no_progress.check, *served(waited_s))

    told = [each.severity for each in findings if each.subject == "idle server"]
    assert told == ([] if severity is None else [severity])


def test_a_server_whose_workers_compute_is_not_stalled() -> None:
    """What its loop waits for may be their results, or the room that they give back."""
    findings = found(no_progress.check, *served(has_worker=True))

    assert not any(each.subject == "idle server" for each in findings)


def test_what_comes_from_outside_is_not_held_back() -> None:
    """A loop that looks for files, say, while its consumer waits for the first of them."""
    idle = IDLE._replace(first=None, container="", because=None)
    job, past = served(idle=idle)
    files = Origin(FILE, idle.condition, "file", "os.listdir(path)")

    unknown = only(no_progress.check, job, past)
    outside = found(no_progress.check, replace(job, origins=(files,)), past)

    assert (unknown.severity, unknown.is_doubtful) == (Severity.INFO, True)
    assert "Nothing is wrong if there is nothing to do yet" in unknown.advice
    assert not any(each.subject == "idle server" for each in outside)


def test_a_server_with_a_connection_to_outside_may_wait_for_that() -> None:
    job, past = served()
    link = socket(9, 77, None, "tcp 10.0.0.1:40000 > 10.0.0.2:80")
    server = job.processes[1]
    sample = replace(server.sample, fds=fds(6, links=[pipe(4, 500, True), link]))
    job = replace(job, processes=(job.processes[0], replace(server, sample=sample)))

    finding = only(no_progress.check, job, past)

    assert finding.severity is Severity.INFO
    assert finding.cause.startswith("It may be that the first of self.waiting")


RETRY = Retry(
    Statement(28, "return self.exchange(endpoint, payload)"),
    Statement(29, "except OSError:"),
    Statement(26, "for attempt in range(4):"),
    True,
    "endpoint",
    OriginStep("/home/me/client.py", "ask", Statement(38, "endpoint = next(self.rotation)")),
    OriginStep("/home/me/client.py", "__init__", Statement(13, "self.endpoints = list(given)")),
)
PAUSES = Activity("sleeping", place="client.py:33 send")
IS_SERVER = Activity("idle", "tcp 127.0.0.1:4000", "socket")


def asking(
    share: float = 0.7,
    retry: Retry | None = RETRY,
    percent: float = 8.0,
    has_ended: bool = True,
    port: int = 4001,
) -> tuple[Snapshot, History]:
    """Main, which sleeps after calls that have failed, and one of two servers, or both."""
    own = main(segments=(), threads=[thread(MAIN, "client.py:send:33", waits=DOZES, still_s=0.1)])
    servers = [
        process(
            number,
            "spawned",
            label=f"server {number}",
            fds=fds(5, links=[socket(3, number, None, f"tcp listens on 127.0.0.1:{at}")]),
            segments=(),
            ended=exited(number, exit_code=0) if has_ended and number == OTHER else None,
        )
        for number, at in ((SERVER, 4000), (OTHER, port))
    ]
    line = SourceLine("/home/me/client.py", 33, "send", Statement(33, "sleep(1)"), retry=retry)
    job = snapshot_of(own, *servers, source=(line,))
    job = with_shares(job, p100={PAUSES: share, COMPUTES: 1 - share}, p300={IS_SERVER: 1.0})
    points = [Point(NOW_S - 60 + n, percent) for n in range(61)]
    return job, history({(MAIN, "cpu_percent"): points})


def test_a_process_that_sleeps_because_a_call_fails_is_named_with_what_has_ended() -> None:
    finding = only(pipeline_bottleneck.check, *asking())

    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "main (100) sleeps 70% of the time at client.py:33 send, each time after `return "
        "self.exchange(endpoint, payload)` (line 28) has failed"
    )
    assert any(
        each.startswith("server 301 (301), which listened at 127.0.0.1:4001, has ended")
        for each in finding.evidence
    )
    assert "Most likely server 301 (301) still counts as one that answers" in finding.cause
    assert "take what has refused a connection out" in finding.advice


def test_an_ended_server_whose_port_another_one_has_taken_over_is_not_the_cause() -> None:
    finding = only(pipeline_bottleneck.check, *asking(port=4000))

    assert "server 301" not in finding.cause + "".join(finding.evidence)


def test_a_list_that_never_gets_shorter_is_named_where_no_end_was_seen() -> None:
    finding = only(pipeline_bottleneck.check, *asking(has_ended=False))

    assert (finding.severity, finding.is_doubtful) == (Severity.INFO, True)
    assert "It may be that what endpoint is chosen from still contains one that" in finding.cause
    assert "Nothing is wrong if that pause is what a server asks for" in finding.advice


def test_an_ended_server_may_not_be_the_one_that_a_call_is_sent_to() -> None:
    finding = only(
        pipeline_bottleneck.check,
        *asking(retry=RETRY._replace(chosen=None, kept=None, target="")),
    )

    assert (finding.severity, finding.is_doubtful) == (Severity.INFO, True)
    assert "It may be that server 301 (301) should answer that call: it has ended" in finding.cause


def test_a_pause_that_a_server_asks_for_is_information() -> None:
    limited = RETRY._replace(is_connection=False, chosen=None, kept=None, target="")

    finding = only(pipeline_bottleneck.check, *asking(retry=limited, has_ended=False))

    assert (finding.severity, finding.is_doubtful) == (Severity.INFO, True)
    assert "Nothing is wrong if that pause is what a server asks for" in finding.advice


@pytest.mark.parametrize(
    ("share", "percent"),
    [
        pytest.param(0.1, 8.0, id="a rare retry"),
        pytest.param(0.99, 0.2, id="waits for a server to start"),
    ],
)
def test_a_rare_retry_and_the_wait_for_a_start_are_quiet(share: float, percent: float) -> None:
    findings = found(pipeline_bottleneck.check, *asking(share, percent=percent))

    assert not any(each.subject == "retries" for each in findings)


def test_a_sleep_that_follows_no_failure_is_quiet() -> None:
    findings = found(pipeline_bottleneck.check, *asking(retry=None))

    assert not any(each.subject == "retries" for each in findings)
