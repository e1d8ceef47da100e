"""A client waits on a connection of a server that has a thread or a coroutine for each."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.verdicts import (
    AMONG_OTHERS,
    BOTH_READ,
    IN_COROUTINE,
    MAY_BOTH_READ,
    OF_OWN_THREAD,
    UNSEEN,
)
from mpwatch.diagnose.rules.hangs import no_progress, standing_still
from mpwatch.model.findings import Severity
from mpwatch.model.history import History
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot, Thread
from mpwatch.model.source_code import (
    Coroutines,
    Mark,
    MarkKind,
    SourceLine,
    Statement,
    UnsafeWake,
)
from mpwatch.model.waits import WaitChain
from tests.builders.snapshots import (
    MAIN,
    fds,
    found,
    frames,
    history,
    line,
    main,
    only,
    process,
    snapshot_of,
    socket,
    thread,
)

SERVER, OURS, THEIRS, LISTENING, QUIET, QUIET_END = 300, 700, 701, 800, 710, 711
HERE, THERE = "127.0.0.1:4000", "127.0.0.1:51000"
FUTEX = WaitedOn("futex", "futex", ("futex 0x7f00",), futex_command=9)
ASKING = ("train.py:read:12", "train.py:ask:20", "train.py:main:58")
SELECTS = ("selectors.py:select", "socketserver.py:serve_forever", "train.py:serve:60")
LOOP = ("selectors.py:select", "asyncio/base_events.py:_run_once", "train.py:serve:60")
HANDLER = ("train.py:read:12", "train.py:handle:40", "socketserver.py:process_request_thread")


def reads(inode: int, **more: Any) -> WaitedOn:
    return WaitedOn("socket-read", "recvfrom", (f"socket:[{inode}]",), **more)


def polls(*inodes: int) -> WaitedOn:
    return WaitedOn("poll", "epoll_wait", tuple(f"socket:[{each}]" for each in inodes))


def client(*others: Thread, waits: WaitedOn | None = None) -> Process:
    asks = thread(MAIN, *ASKING, waits=waits or reads(OURS), still_s=40.0)
    links = [socket(3, OURS, THEIRS, f"tcp {THERE} > {HERE}")]
    return main(fds=fds(9, links=links), segments=(), threads=[asks, *others])


def server(
    *threads: Thread, waits: WaitedOn | None = None, stack: tuple[str, ...] = SELECTS
) -> Process:
    first = thread(SERVER, *stack, waits=waits or polls(LISTENING), still_s=40.0)
    links = [
        socket(4, THEIRS, OURS, f"tcp {HERE} > {THERE}"),
        socket(5, LISTENING, None, f"tcp listens on {HERE}"),
        socket(6, QUIET_END, QUIET, f"tcp {HERE} > 127.0.0.1:51002"),
    ]
    return process(
        SERVER,
        role="spawned",
        label="scorer",
        fds=fds(9, links=links),
        segments=(),
        threads=[first, *threads],
        thread_count=1 + len(threads),
    )


def handler(tid: int, *stack: str, waits: WaitedOn | None, still_s: float = 40.0) -> Thread:
    calls = stack or HANDLER
    return thread(tid, *calls, name=f"handler-{tid - SERVER}", waits=waits, still_s=still_s)


def source(*calls: str, **fields: Any) -> tuple[SourceLine, ...]:
    return tuple(
        SourceLine(each.file, each.line, each.function, Statement(each.line, "code"), **fields)
        for each in frames(*calls)
    )


SENT = source("train.py:ask:20", asked=Statement(19, "sock.sendall(request)"))
READING = source("train.py:read:12", within=(Statement(11, "while left:"),))


def job(*processes: Process, lines: tuple[SourceLine, ...] = (*SENT, *READING)) -> Snapshot:
    return snapshot_of(*processes, source=lines)


def chain(*processes: Process, lines: tuple[SourceLine, ...] = (*SENT, *READING)) -> WaitChain:
    return wait_graph(Index(job(*processes, lines=lines))).chains[0]


def quiet(still_s: float = 40.0) -> History:
    flat = line(0.0, seconds=still_s)
    return history({(MAIN, "cpu_percent"): flat, (SERVER, "cpu_percent"): flat})


@pytest.mark.parametrize(
    ("woken_per_s", "seconds", "verdict"),
    [(0.0, 10.0, "dead-end"), (20.0, 10.0, "progress"), (0.0, 2.0, "unknown")],
    ids=["it is never woken up", "it gets something in between", "not counted for long enough"],
)
def test_a_client_that_is_woken_up_again_and_again_is_at_no_dead_end(
    woken_per_s: float, seconds: float, verdict: str
) -> None:
    past = history({(MAIN, "voluntary_switches"): line(500.0, woken_per_s, seconds)})
    seen = job(client(), server(handler(301, waits=reads(THEIRS))))

    end = wait_graph(Index(seen, past)).chains[0]

    assert end.verdict == verdict


@pytest.mark.parametrize(
    ("still_s", "verdict"), [(0.3, "ordinary"), (None, "ordinary"), (40.0, "unknown")]
)
def test_both_ends_of_a_connection_in_use_are_found_waiting_between_two_messages(
    still_s: float | None, verdict: str
) -> None:
    """The client has sent its next request by the time at which the server is read, or not yet."""
    asks = client()
    asks = replace(asks, threads=(replace(asks.threads[0], still_s=still_s),))
    others = handler(302, "train.py:publish:80", waits=WaitedOn("timer", "clock_nanosleep"))

    [end] = wait_graph(Index(job(asks, server(handler(301, waits=reads(THEIRS)), others)))).chains

    assert end.verdict == verdict
    assert (end.conclusion == MAY_BOTH_READ) == (verdict == "unknown")


@pytest.mark.parametrize("has_stack", [False, True])
def test_a_thread_that_watches_several_connections_runs_no_event_loop_for_that(
    has_stack: bool,
) -> None:
    """As the thread in native code that serves a TCPStore of torch.distributed."""
    store = thread(
        301, *(SELECTS if has_stack else ()), name="pt_tcpstore_uv", waits=polls(THEIRS, QUIET_END)
    )

    end = chain(client(), server(store, waits=FUTEX, stack=("train.py:wait:70",)))

    assert (end.verdict, end.conclusion) == ("unknown", AMONG_OTHERS)
    assert "event loop" not in end.sentence
    assert ("in native code" in end.sentence) is not has_stack
    assert "watches several descriptors" in end.sentence
    assert "in its thread pt_tcpstore_uv, which has this connection" in end.sentence


def test_both_ends_of_a_connection_that_wait_to_receive_are_a_dead_end() -> None:
    end = chain(client(), server(handler(301, waits=reads(THEIRS))))

    assert (end.verdict, end.conclusion) == ("dead-end", BOTH_READ)
    assert end.links[-1].tid == 301
    assert "train.py:12 read, in its thread handler-1, which has this connection" in end.sentence


def test_the_dead_end_is_told_after_a_few_seconds_with_both_lines() -> None:
    asked = client()
    answers = server(handler(301, waits=reads(THEIRS, wanted_bytes=512)))

    told = only(standing_still.check, job(asked, answers), quiet(6.0))

    text = " ".join((told.summary, *told.evidence, told.cause, told.advice))
    assert told.severity is Severity.CRITICAL
    assert "both wait to receive on one connection" in text
    assert "train.py:12 read" in text
    assert "`sock.sendall(request)` (train.py:19)" in text
    assert "512" in text


def test_a_subscriber_may_wait_for_what_another_thread_sends() -> None:
    publisher = handler(302, "train.py:publish:80", waits=WaitedOn("timer", "clock_nanosleep"))

    end = chain(client(), server(handler(301, waits=reads(THEIRS)), publisher))

    assert (end.verdict, end.conclusion) == ("unknown", MAY_BOTH_READ)


@pytest.mark.parametrize(
    "other",
    [
        thread(302, "train.py:compute:70", state="R", still_s=0.0),
        thread(
            302,
            "train.py:compute:70",
            "concurrent/futures/thread.py:_worker",
            waits=WaitedOn("timer", "clock_nanosleep"),
        ),
        thread(302, "train.py:finish:75", waits=WaitedOn("timer", "clock_nanosleep")),
    ],
)
def test_a_thread_at_work_may_have_another_one_send_its_result(other: Thread) -> None:
    silent = source("train.py:compute:70", "train.py:finish:75", may_send=False)
    wakes = Mark(
        "wakes", "/home/me/train.py", "finish", "self.done", Statement(76, "self.done.set()")
    )
    asked = server(handler(301, waits=reads(THEIRS)), other)
    lines = (*SENT, *READING, *silent)

    end = wait_graph(Index(snapshot_of(client(), asked, source=lines, marks=(wakes,)))).chains[0]

    assert (end.verdict, end.conclusion) == ("unknown", MAY_BOTH_READ)


def test_a_thread_that_only_limits_the_time_of_the_server_sends_nothing() -> None:
    limit = thread(302, "train.py:expire:79", waits=WaitedOn("timer", "clock_nanosleep"))
    silent = source("train.py:expire:79", may_send=False)

    end = chain(
        client(),
        server(handler(301, waits=reads(THEIRS)), limit),
        lines=(*SENT, *READING, *silent),
    )

    assert end.verdict == "dead-end"


def test_a_client_that_has_not_asked_may_wait_for_news() -> None:
    loop = source("train.py:read:12", within=(Statement(11, "for news in lines:"),))

    end = chain(client(), server(handler(301, waits=reads(THEIRS))), lines=(*loop, *SENT))

    assert end.verdict == "unknown"
    told = found(no_progress.check, job(client(), server(), lines=loop), quiet())
    assert {each.severity for each in told} <= {Severity.INFO}


def test_another_client_that_works_may_make_the_server_send() -> None:
    other = process(
        400,
        role="spawned",
        label="other",
        fds=fds(9, links=[socket(3, QUIET, QUIET_END, f"tcp 127.0.0.1:51002 > {HERE}")]),
        segments=(),
        threads=[thread(400, "train.py:work:90", state="R", still_s=0.0)],
    )
    idle = handler(302, waits=reads(QUIET_END))

    end = chain(client(), server(handler(301, waits=reads(THEIRS)), idle), other)

    assert end.verdict == "unknown"


def test_an_idle_connection_whose_client_does_something_else_is_no_wait() -> None:
    works = main(
        fds=fds(9, links=[socket(3, OURS, THEIRS, f"tcp {THERE} > {HERE}")]),
        segments=(),
        threads=[thread(MAIN, "train.py:work:90", state="R", still_s=0.0)],
    )

    graph = wait_graph(Index(job(works, server(handler(301, waits=reads(THEIRS))))))

    assert {each.verdict for each in graph.chains} <= {"ordinary", "progress"}


def test_the_chain_goes_on_through_the_thread_that_waits_inside_of_the_server() -> None:
    idle = handler(301, waits=reads(QUIET_END))
    waits = ("threading.py:wait", "train.py:predict:54", *HANDLER[1:])
    answers = handler(302, *waits, waits=FUTEX, still_s=39.0)

    end = chain(client(), server(idle, answers))

    assert (end.verdict, end.conclusion) == ("unknown", OF_OWN_THREAD)
    assert end.links[-1].tid == 302
    assert "train.py:54 predict, in its thread handler-2" in end.sentence


def test_the_thread_of_the_server_is_named_where_the_whole_job_waits_for_it() -> None:
    waits = ("threading.py:wait", "train.py:predict:54", *HANDLER[1:])
    answers = server(handler(302, *waits, waits=FUTEX, still_s=39.0))

    told = only(no_progress.check, job(client(), answers), quiet())

    assert "train.py:54 predict" in " ".join((told.summary, *told.evidence))
    assert "nothing to do" not in " ".join((told.summary, told.cause))


def test_a_thread_that_waits_for_another_process_leads_there() -> None:
    waits = ("train.py:fetch:70", *HANDLER[1:])
    answers = handler(302, *waits, waits=reads(900), still_s=39.0)
    behind = process(
        400,
        role="spawned",
        label="store",
        fds=fds(9, links=[socket(3, 901, 900)]),
        segments=(),
        threads=[thread(400, "train.py:work:90", state="R", still_s=0.0)],
    )
    asked = server(answers)
    links = (*(asked.sample.fds.links or ()), socket(7, 900, 901)) if asked.sample.fds else ()
    with_store = process(
        SERVER,
        role="spawned",
        label="scorer",
        fds=fds(9, links=list(links)),
        segments=(),
        threads=asked.threads,
        thread_count=2,
    )

    end = chain(client(), with_store, behind)

    assert end.verdict == "progress"
    assert end.links[-1].name == "store"


def test_an_event_loop_with_the_connection_of_a_waiting_client_is_not_idle() -> None:
    watches = server(waits=polls(LISTENING, THEIRS), stack=LOOP)

    end = chain(client(), watches)

    assert (end.verdict, end.conclusion) == ("unknown", IN_COROUTINE)
    assert "nothing to do" not in end.sentence


def test_an_event_loop_with_one_thread_has_not_only_inherited_the_connection() -> None:
    watches = server(waits=polls(LISTENING, THEIRS), stack=LOOP)
    forked = replace(watches, sample=replace(watches.sample, start_method="fork"))
    silent = source("train.py:serve:60", may_send=False)

    end = chain(client(), forked, lines=(*SENT, *silent))

    assert (end.verdict, end.conclusion) == ("unknown", IN_COROUTINE)


def test_a_server_of_which_no_thread_is_known_to_answer_is_not_ordinary() -> None:
    end = chain(client(), server())

    assert (end.verdict, end.conclusion) == ("unknown", UNSEEN)


def test_a_handler_that_runs_is_progress() -> None:
    runs = thread(302, *HANDLER, name="handler-2", state="R", still_s=0.0, cpu_percent=90.0)

    end = chain(client(), server(runs))

    assert end.verdict == "progress"
    assert end.links[-1].tid == 302


WAITS = ("threading.py:wait", "train.py:predict:54", *HANDLER[1:])
CONDITION = SourceLine(
    "/home/me/train.py",
    54,
    "predict",
    Statement(54, "self.ready.wait_for(lambda: key in self.done)"),
)


def mark(kind: MarkKind, function: str, about: str, at: int, text: str) -> Mark:
    return Mark(kind, "/home/me/train.py", function, about, Statement(at, text))


def test_the_line_that_would_wake_the_thread_of_a_server_is_named() -> None:
    engine = handler(
        303, "train.py:run:27", waits=WaitedOn("timer", "clock_nanosleep"), still_s=0.0
    )
    wakes = mark("wakes", "run", "self.ready", 48, "self.ready.notify_all()")
    asked = server(handler(302, *WAITS, waits=FUTEX, still_s=39.0), engine)

    told = only(
        no_progress.check,
        snapshot_of(client(), asked, source=(*SENT, CONDITION), marks=(wakes,)),
        quiet(),
    )

    at = "`self.ready.notify_all()` (train.py:48 run)"
    assert f"self.ready, matched by its name only, is woken up at {at}" in told.cause
    assert "Its thread handler-3 is in that function, at train.py:27 run" in told.cause


def test_an_entry_that_is_emptied_too_late_is_the_likely_reason() -> None:
    lost = mark("emptied-late", "run", "self.items, 40, predict", 45, "self.items = {}")
    asked = server(handler(302, *WAITS, waits=FUTEX, still_s=39.0))

    told = only(
        no_progress.check,
        snapshot_of(client(), asked, source=(*SENT, CONDITION), marks=(lost,)),
        quiet(),
    )

    assert "`self.items = {}` (train.py:45) empties all of it later" in told.cause
    assert "no other line sets, notifies or releases self.ready" in told.cause


def test_an_event_loop_whose_coroutines_take_a_second_permit_is_explained() -> None:
    again = mark("takes-again", "reply", "self.slots, 46, part, 54", 50, "part = await self.part()")
    watches = server(waits=polls(LISTENING, THEIRS), stack=LOOP)

    told = only(
        no_progress.check, snapshot_of(client(), watches, source=SENT, marks=(again,)), quiet()
    )

    assert told.severity is Severity.WARNING
    assert "train.py:50" in told.cause
    assert "part takes it once more in line 54" in told.cause
    assert "nothing to do" not in told.summary


def test_permits_of_a_file_that_only_another_process_is_in_explain_nothing() -> None:
    again = mark("takes-again", "reply", "self.slots, 46, part, 54", 50, "part = await self.part()")
    elsewhere = again._replace(file="/home/me/other/client_only.py")
    watches = server(waits=polls(LISTENING, THEIRS), stack=LOOP)

    told = only(
        no_progress.check, snapshot_of(client(), watches, source=SENT, marks=(elsewhere,)), quiet()
    )

    assert told.severity is Severity.INFO
    assert "takes it once more" not in told.cause


def test_an_event_loop_whose_permits_may_be_lost_is_explained() -> None:
    lost = mark("unreleased", "reply", "self.slots, 46", 50, "part = await work()")
    watches = server(waits=polls(LISTENING, THEIRS), stack=LOOP)

    told = only(
        no_progress.check, snapshot_of(client(), watches, source=SENT, marks=(lost,)), quiet()
    )

    assert told.severity is Severity.INFO
    assert "leaves out the release of self.slots" in told.cause
    assert "train.py:50" in told.cause


@pytest.mark.parametrize(
    ("sent", "is_named"), [("send(sock, request)", True), ("sock.sendall(request)", False)]
)
def test_a_length_of_a_text_is_the_reason_where_that_function_has_sent(
    sent: str, is_named: bool
) -> None:
    asks = source("train.py:ask:20", asked=Statement(19, sent))
    length = mark("length-of-text", "send", "text", 9, "sock.sendall(H.pack(len(text)) + ...)")
    asked = server(handler(301, waits=reads(THEIRS)))

    told = only(
        standing_still.check,
        snapshot_of(client(), asked, source=(*asks, *READING), marks=(length,)),
        quiet(),
    )

    told_of = "(train.py:9) sends the number of characters of text" in told.cause
    assert told_of is is_named


@pytest.mark.parametrize(("cpu_percent", "is_at_work"), [(95.0, True), (4.0, False)])
def test_another_thread_of_the_server_that_computes_may_be_at_work_for_the_request(
    cpu_percent: float, is_at_work: bool
) -> None:
    model = thread(303, "train.py:compute:70", cpu_percent=cpu_percent, still_s=0.0)
    asked = server(handler(302, *WAITS, waits=FUTEX, still_s=39.0), model)
    graph = snapshot_of(client(), asked, source=(*SENT, CONDITION))

    told = only(no_progress.check, graph, quiet())

    assert told.severity is (Severity.INFO if is_at_work else Severity.WARNING)
    assert ("computes" in told.cause) is is_at_work


def test_a_call_that_does_not_wake_the_loop_of_a_server_up_is_named() -> None:
    watches = server(waits=polls(LISTENING, THEIRS), stack=LOOP)
    file, statement = watches.threads[0].stack[-1].file, Statement(20, "answer.set_result(1)")
    wake = UnsafeWake(
        *("Future", "answer", "set_result", file, "work", statement),
        *(True, file, "start", Statement(9, "Thread(target=work).start()"), False),
    )
    asked = job(client(), watches)

    told = only(no_progress.check, replace(asked, coroutines=Coroutines((wake,))), quiet())

    assert told.severity is Severity.WARNING
    assert "`answer.set_result(1)` at train.py:20 work runs in another thread" in told.cause
    assert "call_soon_threadsafe(answer.set_result, ...)" in told.advice
    [plain] = found(no_progress.check, asked, quiet())
    assert "runs in another thread" not in plain.cause
    timed = replace(polls(LISTENING, THEIRS), timeout_s=5.0)
    other = replace(job(client(), server(waits=timed, stack=LOOP)), coroutines=Coroutines((wake,)))
    assert "runs in another thread" not in str(found(no_progress.check, other, quiet()))


ACCEPTING = (
    "multiprocessing/connection.py:recv_bytes",
    "multiprocessing/connection.py:deliver_challenge",
    "multiprocessing/connection.py:accept",
    "train.py:serve:60",
)


def in_handshake(*others: Thread) -> Process:
    return server(*others, waits=reads(THEIRS), stack=ACCEPTING)


def pending() -> Process:
    """A client whose connection the server has not accepted yet."""
    waits = thread(400, *ASKING, waits=reads(900), still_s=40.0)
    links = [socket(3, 900, LISTENING, f"tcp 127.0.0.1:51009 > {HERE}")]
    return process(400, role="spawned", label="actor", fds=fds(9, links=links), threads=[waits])


def test_a_client_that_takes_no_part_in_a_handshake_keeps_all_others_from_the_server() -> None:
    handles = handler(301, "train.py:handle:40", waits=FUTEX)
    snapshot = job(client(), in_handshake(handles), pending(), lines=READING)

    finding = only(standing_still.check, snapshot, quiet())

    assert finding.severity is Severity.CRITICAL
    assert (
        "scorer (300) accepts nobody while it waits for main (100), which takes no part in the "
        "authentication of a Listener with an authkey" in finding.summary
    )
    assert "scorer (300) is in accept() at train.py:60 serve, which includes" in finding.cause
    assert "main (100) takes no part in it, and waits to receive itself" in finding.cause
    assert "So far actor (400) waits for that." in finding.cause
    assert "deliver_challenge()" in finding.advice


def test_a_connection_that_is_not_accepted_is_waited_for_at_the_server() -> None:
    graph = wait_graph(Index(job(client(), in_handshake(), pending())))

    (edge,) = (each for each in graph.edges if each.waiter.pid == 400)

    assert [each.pid for each in edge.providers] == [SERVER]
    assert edge.what == f"tcp 127.0.0.1:51009 > {HERE}, which is not accepted yet"


def test_a_client_in_the_handshake_is_no_reason() -> None:
    connecting = ("multiprocessing/connection.py:answer_challenge",
                  "multiprocessing/connection.py:Client", *ASKING)  # fmt: skip
    answers = client()
    first = replace(answers.threads[0], stack=frames(*connecting))
    snapshot = job(replace(answers, threads=(first,)), in_handshake(), pending(), lines=READING)

    assert wait_graph(Index(snapshot)).chains[0].conclusion != BOTH_READ
