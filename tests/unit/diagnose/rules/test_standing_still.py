"""A cycle or dead end is explained by what each of its processes waits for."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import standing_still
from mpwatch.model.account import Activity
from mpwatch.model.findings import Finding
from mpwatch.model.history import Point
from mpwatch.model.ids import SegmentId
from mpwatch.model.samples import FdLink, HeldLock, LockHolder, WaitedOn
from mpwatch.model.snapshot import Process, Segment, Snapshot
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import with_shares
from tests.builders.snapshots import (
    IDLE_WORKER,
    MAIN,
    NOW_S,
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
    segment,
    snapshot_of,
    socket,
    thread,
)

STILL = 60.0
PUT = ("multiprocessing/queues.py:put", "train.py:put:64")
GET = ("multiprocessing/connection.py:recv", "multiprocessing/queues.py:get", "train.py:work:8")
BARRIER = (
    "multiprocessing/synchronize.py:wait",
    "threading.py:_wait",
    "threading.py:wait",
    "train.py:replica:20",
)
JOIN = ("multiprocessing/popen_fork.py:poll", "multiprocessing/process.py:join", "train.py:main:9")
C10D = "torch/distributed/distributed_c10d.py"


def at_semaphore(inode: int, timeout_s: float | None = None) -> WaitedOn:
    return WaitedOn(
        "semaphore",
        "futex",
        (f"sem 9:{inode}",),
        segment=SegmentId(9, inode),
        value=0,
        timeout_s=timeout_s,
    )


def waits_for_child(number: int) -> WaitedOn:
    return WaitedOn("child", "wait4", (f"pid {number}",))


def semaphore(inode: int, *users: int) -> Segment:
    made: Segment = segment(inode, kind="semaphore", mappers=tuple(map(pid, users)))
    return made


def one(
    number: int,
    waits: WaitedOn,
    *stack: str,
    links: tuple[FdLink, ...] = (),
    still_s: float = STILL,
    **more: Any,
) -> Process:
    """Main or one of its children, with one thread."""
    threads = [thread(number, *stack, waits=waits, still_s=still_s)]
    taken = {"fds": fds(9, links=links), "segments": (), "threads": threads, **more}
    if number == MAIN:
        return main(**taken)
    return process(number, "spawned", label=f"actor {number - 300}", **taken)


def test_processes_that_all_put_into_full_queues_are_a_cycle_in_which_none_gets() -> None:
    """Main puts a stale item back into the queue that only it reads; a feeder fills another one."""
    jobs = [
        one(MAIN, at_semaphore(77), *PUT),
        one(300, at_semaphore(78), *PUT),
        one(301, at_semaphore(77), *PUT),
    ]
    segments = (semaphore(77, MAIN, 300, 301), semaphore(78, MAIN, 300, 301))

    finding = only(standing_still.check, snapshot_of(*jobs, segments=segments))

    assert (
        "main (100), actor 0 (300) and actor 1 (301) wait to put into 2 full queues"
        in finding.summary
    )
    assert "none of them gets an item" in finding.cause
    assert "puts items back into the queue that it reads" in finding.advice
    assert "mpwatch dump" not in finding.advice


def test_a_loader_worker_that_was_forked_with_a_queue_takes_no_part_in_its_cycle() -> None:
    """It maps the semaphores of all queues of its parent, and waits for indices only."""
    idle = process(
        302,
        threads=[thread(302, *IDLE_WORKER, waits=WaitedOn("poll", "poll", ("pipe:[5]",)))],
        fds=fds(9, links=()),
        segments=(),
    )
    jobs = [one(MAIN, at_semaphore(77), *PUT), one(300, at_semaphore(78), *PUT), idle]
    segments = (semaphore(77, 302, MAIN, 300), semaphore(78, 302, MAIN, 300))

    finding = only(standing_still.check, snapshot_of(*jobs, segments=segments))

    assert finding.summary.startswith(
        "main (100) and actor 0 (300) wait to put into 2 full queues that none of them reads"
    )
    assert not any("loader-worker" in each for each in finding.evidence)


def test_a_put_with_a_timeout_in_a_cycle_is_looked_at_for_longer() -> None:
    def job(timeout_s: float | None) -> Any:
        jobs = [
            one(number, at_semaphore(77, timeout_s), *PUT, still_s=10.0) for number in (MAIN, 300)
        ]
        return snapshot_of(*jobs, segments=(semaphore(77, MAIN, 300),))

    assert "full queue" in only(standing_still.check, job(None)).summary
    assert found(standing_still.check, job(5.0)) == []


def test_a_barrier_for_more_parties_than_exist_is_reported_with_those_that_wait() -> None:
    jobs = [one(MAIN, waits_for_child(300), *JOIN)]
    jobs += [one(number, at_semaphore(77), *BARRIER) for number in (300, 301)]
    job = snapshot_of(*jobs, segments=(semaphore(77, MAIN, 300, 301),))

    finding = only(standing_still.check, job)

    assert "actor 0 (300) and actor 1 (301) wait at a barrier for more parties" in finding.summary
    assert "main (100), which has it as well, waits for the exit of actor 0 (300)" in finding.cause
    assert "exactly as many parties" in finding.advice


@pytest.mark.parametrize(
    ("dead", "words"),
    [
        ([process(302, "other", ended=exited(302, exit_code=1))], "for other 302 (302), which has"),
        ([], "that no other process reaches"),
    ],
    ids=["one has ended", "none has"],
)
def test_processes_that_are_all_at_a_barrier_wait_for_a_missing_one(
    dead: list[Process], words: str
) -> None:
    jobs = [one(number, at_semaphore(77), *BARRIER) for number in (MAIN, 300, 301)]
    job = snapshot_of(*jobs, *dead, segments=(semaphore(77, MAIN, 300, 301),))

    finding = only(standing_still.check, job)

    assert words in finding.summary
    assert "main (100), actor 0 (300) and actor 1 (301) have arrived" in finding.cause
    assert any("exit code 1" in each for each in finding.evidence) == bool(dead)


def test_processes_that_wait_for_one_at_a_dead_end_are_reported_with_it() -> None:
    """The only thread of main waits for its own queue; two workers wait for tasks from main."""
    links = (pipe(5, 500, False), pipe(6, 500, True))
    lock = WaitedOn("futex", "futex", ("futex 0x1",), futex_command=9)
    jobs = [
        one(MAIN, lock, "threading.py:wait", "queue.py:get", "train.py:next:9", links=links),
        *(
            one(n, WaitedOn("pipe-read", "read", ("pipe:[500]",)), *GET, links=links[:1])
            for n in (300, 301)
        ),
    ]

    finding = only(
        standing_still.check,
        snapshot_of(*(replace(j, sample=replace(j.sample, thread_count=1)) for j in jobs)),
    )

    assert finding.process == pid(MAIN)


def test_a_process_that_waits_for_another_one_at_a_barrier_is_explained_step_by_step() -> None:
    """One waits at the barrier and keeps a lock, for which the other one waits."""
    jobs = [
        main(threads=[thread(MAIN, state="R")], segments=()),
        one(300, at_semaphore(77), *BARRIER),
        one(301, at_semaphore(78), "multiprocessing/synchronize.py:__enter__", "train.py:save:5"),
    ]
    segments = (semaphore(77, 300, 301), semaphore(78, 300, 301))

    finding = only(standing_still.check, snapshot_of(*jobs, segments=segments))

    assert "actor 0 (300) continues when actor 1 (301) reaches the barrier" in finding.cause
    assert "actor 1 (301) continues when actor 0 (300) releases that semaphore" in finding.cause


@pytest.mark.parametrize(
    ("header", "is_part"),
    [
        ("while count < batch_size:", True),
        ("while len(rows) < self.size:", True),
        ("while True:", False),
    ],
)
def test_a_batch_whose_last_part_does_not_come_is_told_with_the_one_that_waits_for_its_results(
    header: str, is_part: bool
) -> None:
    """Main joins both; all of them have both pipes, as forks have."""
    ends = tuple(pipe(fd, 500 + fd // 7, fd % 2 == 0) for fd in (5, 6, 7, 8))
    get = ("multiprocessing/queues.py:get", "train.py:next_batch:31")
    sends = ("multiprocessing/queues.py:get", "train.py:feed:67")
    jobs = [
        one(MAIN, waits_for_child(300), *JOIN, links=ends),
        one(300, WaitedOn("pipe-read", "read", ("pipe:[500]",)), *get, links=ends),
        one(301, WaitedOn("pipe-read", "read", ("pipe:[501]",)), *sends, links=ends),
    ]
    line = SourceLine(
        "/home/me/train.py", 31, "next_batch", Statement(31, "item = rows.get()"),
        (Statement(30, header),),
    )  # fmt: skip

    finding = only(standing_still.check, snapshot_of(*jobs, source=(line,)))

    assert finding.summary.startswith(
        "actor 0 (300) waits for more items of a batch, and actor 1 (301) waits to receive"
        if is_part
        else "main (100) waits for the exit of actor 0 (300)"
    )
    if is_part:
        assert "waits itself, to receive (actor 1 (301) at train.py:67 feed)" in finding.cause
        assert finding.advice.startswith("Let the sender mark the end of each part")


def test_a_parent_that_joins_a_worker_which_was_never_told_to_end() -> None:
    links = (pipe(5, 500, False), pipe(6, 500, True))
    jobs = [
        one(MAIN, waits_for_child(300), *JOIN, links=links),
        one(300, WaitedOn("pipe-read", "read", ("pipe:[500]",)), *GET, links=links),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "main (100) waits for the exit of actor 0 (300), which waits for something" in (
        finding.summary
    )
    assert "one None for each" in finding.advice


def test_a_thread_that_should_answer_and_waits_itself_is_named() -> None:
    parent = one(MAIN, waits_for_child(300), *JOIN, links=(socket(3, 700, 701),))
    server = thread(
        101,
        "threading.py:wait",
        "socketserver.py:shutdown",
        "data.py:do_POST:17",
        waits=WaitedOn("futex", "futex"),
        name="report-server",
    )
    parent = replace(parent, threads=(*parent.threads, server))
    asks = WaitedOn("socket-read", "recvfrom", ("socket:[701]",))
    child = one(300, asks, "train.py:post:21", links=(socket(4, 701, 700),))

    finding = only(standing_still.check, snapshot_of(parent, child))

    waits = "thread report-server waits for an event or condition at data.py:17 do_POST"
    assert f"main: {waits}" in finding.evidence
    assert waits in finding.cause
    assert "shutdown() in a thread of its own" in finding.advice


def test_a_parent_that_joins_a_child_which_sends_through_a_socket() -> None:
    jobs = [
        one(MAIN, waits_for_child(300), *JOIN, links=(socket(3, 700, 701),)),
        one(
            300,
            WaitedOn("socket-write", "sendto", ("socket:[701]",)),
            "multiprocessing/connection.py:send",
            "train.py:work:8",
            links=(socket(4, 701, 700),),
            still_s=10.0,
        ),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "waits for it to read" in finding.summary
    assert "reads nothing meanwhile" in finding.cause


def test_a_joined_child_that_waits_and_handles_sigterm_may_have_been_told_to_end() -> None:
    """The handler is its parent's, inherited by the fork, and sets a flag there."""

    def job(caught: int) -> Snapshot:
        sends = WaitedOn("socket-write", "sendto", ("socket:[701]",))
        child = one(
            300, sends, "train.py:work:8", links=(socket(4, 701, 700),), signals_caught=caught
        )
        return snapshot_of(
            one(MAIN, waits_for_child(300), *JOIN, links=(socket(3, 700, 701),)), child
        )

    handles = only(standing_still.check, job(1 << (signal.SIGTERM - 1)))
    other = only(standing_still.check, job(0))

    assert "has a handler for SIGTERM" in handles.cause
    assert "signal.SIG_DFL" in handles.advice
    assert "SIGTERM" not in other.cause + other.advice


def test_a_parent_that_waits_for_a_program_whose_errors_it_does_not_read() -> None:
    jobs = [
        one(MAIN, waits_for_child(300), "subprocess.py:wait", links=(pipe(3, 500, False),)),
        one(300, WaitedOn("pipe-write", "write", ("pipe:[500]",)), links=(pipe(2, 500, True),)),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "whose standard error no process reads" in finding.summary
    assert "communicate()" in finding.advice


def test_processes_that_all_wait_to_receive_are_a_cycle_with_that_cause() -> None:
    jobs = [
        one(
            MAIN,
            WaitedOn("pipe-read", "read", ("pipe:[500]",)),
            *GET,
            links=(pipe(5, 500, False), pipe(6, 600, True)),
        ),
        one(
            300,
            WaitedOn("pipe-read", "read", ("pipe:[600]",)),
            *GET,
            links=(pipe(5, 600, False), pipe(6, 500, True)),
        ),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "main (100) and actor 0 (300) all wait to receive" in finding.summary
    assert "in Queue.get for an item" in finding.cause


def asked(
    statement: str,
    *,
    out: int = 1,
    marks: tuple[Mark, ...] = (),
    source: tuple[SourceLine, ...] = (),
    **more: Any,
) -> Finding:
    """A program that reads its standard input, and one that waits for what it prints."""
    line = SourceLine("/home/me/train.py", 21, "serve", Statement(21, statement))
    jobs = [
        one(
            MAIN,
            WaitedOn("pipe-read", "read", ("pipe:[500]",), (7,)),
            "data.py:wait_ready:30",
            links=(pipe(7, 500, False), pipe(6, 600, True)),
        ),
        one(
            300,
            WaitedOn("pipe-read", "read", ("pipe:[600]",), (0,)),
            "train.py:serve:21",
            links=(pipe(0, 600, False), pipe(out, 500, True)),
            **more,
        ),
    ]
    return only(standing_still.check, snapshot_of(*jobs, source=(line, *source), marks=marks))


@pytest.mark.parametrize("statement", ["line = sys.stdin.readline()", "for line in sys.stdin:"])
def test_what_a_program_has_printed_into_a_pipe_may_be_in_its_buffer(statement: str) -> None:
    finding = asked(statement)

    assert "Most likely actor 0 (300) has printed that, and it is still in its buffer" in (
        finding.cause
    )
    assert finding.advice.startswith("Flush what actor 0 (300) prints: print(..., flush=True)")


def test_input_that_the_asking_program_never_flushes_is_named_with_its_line() -> None:
    writes = Mark(
        "unflushed",
        "/home/me/data.py",
        "send",
        "proc.stdin",
        Statement(26, "proc.stdin.write(line)"),
    )

    finding = asked("for line in sys.stdin:", marks=(writes,))

    assert "`proc.stdin.write(line)` at data.py:26 send writes to a pipe in blocks" in finding.cause
    assert finding.advice.startswith("Call proc.stdin.flush() after each message")


READS_LINE = Mark(
    "buffered-read",
    "/home/me/data.py",
    "wait_ready",
    "self.proc.stdout, 12",
    Statement(33, "line = self.proc.stdout.readline()"),
)


def polled(statement: str = "self.poller.poll()", **more: Any) -> Finding:
    """As `asked`, of a program that is waited for at this statement, and has answered before."""
    waits = SourceLine("/home/me/data.py", 30, "wait_ready", Statement(30, statement))
    return asked("for line in sys.stdin:", source=(waits,), **more)


def test_a_message_that_is_in_the_buffer_of_the_one_that_polls_for_it() -> None:
    finding = polled(marks=(READS_LINE,), written_bytes=900)

    assert finding.cause.startswith(
        "Most likely what main (100) waits for has already arrived, and is in its own buffer: "
        "`line = self.proc.stdout.readline()` at data.py:33 wait_ready takes all that has come"
    )
    assert "data.py:12 gives it the descriptor" in finding.cause
    assert "os.read()" in finding.advice
    assert "process.stdin.close()" not in finding.advice


def test_one_that_reads_itself_or_from_a_program_that_has_written_nothing_polls_for_nothing() -> (
    None
):
    findings = [
        polled("line = self.proc.stdout.readline()", marks=(READS_LINE,), written_bytes=900),
        polled(marks=(READS_LINE,), written_bytes=0),
        polled(marks=(READS_LINE._replace(file="/home/me/other.py"),), written_bytes=900),
    ]

    assert not any("has already arrived" in each.cause for each in findings)


def test_the_input_of_a_program_that_answers_each_line_is_not_to_be_closed() -> None:
    answers = asked("for line in sys.stdin:", out=5, written_bytes=900)
    collects = asked("for line in sys.stdin:", out=5, written_bytes=0)

    assert "gets an end of file" not in answers.cause
    assert "process.stdin.close()" not in answers.advice
    assert "every request needs exactly one answer" in answers.advice
    assert "process.stdin.close()" in collects.advice


ASKS = Mark(
    "prompts",
    "/home/me/train.py",
    "serve",
    'sys.stderr.write(f"{path} exists. Overwrite? [y/N] ") in line 19',
    Statement(21, "answer = sys.stdin.readline()"),
)


@pytest.mark.parametrize("out", [1, 2])
def test_a_question_of_a_subprocess_that_nobody_sees_is_named_with_its_lines(out: int) -> None:
    finding = asked(ASKS.statement.text, marks=(ASKS,), out=out, written_bytes=900)

    assert finding.summary.startswith(
        "actor 0 (300) asks a question at train.py:21 serve and waits for the answer on its "
        "standard input, and main (100), which has the other end, waits for output of it"
    )
    assert "Overwrite? [y/N] " in finding.cause
    assert "(train.py:19) writes no whole line to its standard error" in finding.cause
    assert ("does not get the question" in finding.cause) is (out == 2)
    assert "buffer" not in finding.cause
    assert "stdin=subprocess.DEVNULL" in finding.advice


def test_a_question_of_another_line_or_to_another_process_is_not_the_one_it_waits_for() -> None:
    other = ASKS._replace(statement=Statement(40, "answer = sys.stdin.readline()"))

    findings = [
        asked(ASKS.statement.text, marks=(other,), written_bytes=900),
        asked(ASKS.statement.text, marks=(ASKS,), out=5, written_bytes=900),
    ]

    assert not any("question" in each.summary for each in findings)


def test_a_program_that_shows_no_lines_may_read_its_input_without_being_meant_to() -> None:
    is_python = [asked("", is_python=each).advice for each in (True, False)]

    assert ["stdin=subprocess.DEVNULL" in each for each in is_python] == [False, True]


UNCOUNTED = Mark(
    "uncounted",
    "/home/me/data.py",
    "task",
    "left.value, 31, except Exception as error: in line 27",
    Statement(35, "self.left.value -= 1"),
)
LOOP = Statement(56, "while self.left.value > 0 or not self.outbox.empty():")


def counting(*, loop: Statement = LOOP, at: str = "data.py:run:22") -> Finding:
    """Main waits in a loop for items, and a worker waits for work."""
    line = SourceLine(
        "/home/me/train.py",
        58,
        "collect",
        Statement(58, "yield self.outbox.get(timeout=0.5)"),
        within=(loop,),
    )
    jobs = [
        one(
            number,
            WaitedOn("poll", "poll", (f"pipe:[{reads}]",), (7,), timeout_s=limit_s),
            *GET[:2],
            place,
            links=(pipe(7, reads, False), pipe(6, writes, True)),
        )
        for number, reads, writes, place, limit_s in (
            (MAIN, 500, 600, "train.py:collect:58", 0.5),
            (300, 600, 500, at, None),
        )
    ]
    return only(standing_still.check, snapshot_of(*jobs, source=(line,), marks=(UNCOUNTED,)))


def test_a_counter_that_a_caught_exception_leaves_wrong_is_named_with_its_line() -> None:
    finding = counting()

    assert finding.summary.startswith(
        "main (100) waits at train.py:58 collect in a loop until left.value has the right value, "
        "and most likely an exception has left out `self.left.value -= 1` at data.py:35 task"
    )
    assert "counts only after data.py:31 and the lines below" in finding.cause
    assert "`except Exception as error:` (data.py:27)" in finding.cause
    assert "actor 0 (300) waits for work meanwhile" in finding.cause
    assert "finally" in finding.advice


def test_a_counter_that_the_loop_does_not_ask_or_that_is_yet_to_be_changed_is_not_named() -> None:
    findings = [
        counting(loop=Statement(56, "while self.bytes_left.value > 0:")),
        counting(loop=Statement(56, "while True:")),
        counting(at="data.py:task:33"),
    ]

    assert not any("left out" in each.summary for each in findings)


def test_output_that_is_not_buffered_or_not_asked_for_by_lines_is_not_called_so() -> None:
    findings = (
        asked("data = sys.stdin.read()"),
        asked("line = sys.stdin.readline()", out=5),
        asked("line = sys.stdin.readline()", environment={"PYTHONUNBUFFERED": "1"}),
    )

    assert not any("buffer" in each.cause for each in findings)
    assert all("reads its standard input, and gets an end of file" in e.cause for e in findings)


def test_the_finding_about_ranks_that_are_all_in_send_says_that_none_receives() -> None:
    ranks = [
        process(
            300 + number,
            "rank",
            label=f"rank {number}",
            rank=number,
            segments=(),
            threads=[
                thread(
                    300 + number,
                    f"{C10D}:send",
                    "train.py:shift:15",
                    waits=WaitedOn("futex", "futex"),
                    still_s=STILL,
                ),
                thread(900 + number),
            ],
        )
        for number in range(3)
    ]

    finding = only(standing_still.check, snapshot_of(main(), *ranks))

    assert "none of them receives" in finding.summary
    assert "isend" in finding.advice


def test_a_process_that_reads_after_its_last_child_exited_is_shown_their_exits() -> None:
    links = (pipe(5, 500, False), pipe(6, 500, True))
    waits = one(MAIN, WaitedOn("pipe-read", "read", ("pipe:[500]",)), *GET, links=links)
    ended = [process(n, "spawned", ended=exited(n, exit_code=0)) for n in (300, 301)]

    finding = only(standing_still.check, snapshot_of(waits, *ended))

    assert "all processes that it has started have ended" in finding.summary
    assert "2 processes started by it ended: exit code 0" in finding.evidence
    assert "cannot be pickled" in finding.advice


def draws(file: str = "/home/me/source.py", function: str = "next_group", line: int = 44) -> Mark:
    """A statement that takes an empty queue for the end of the work."""
    text = "self.current = self.tasks.get(block=False)"
    return Mark("ends-when-empty", file, function, "self.tasks", Statement(line, text))


def reads_after(*marks: Mark, exit_code: int = 0) -> Finding:
    links = (pipe(5, 500, False), pipe(6, 500, True))
    waits = one(MAIN, WaitedOn("pipe-read", "read", ("pipe:[500]",)), *GET, links=links)
    ended = [process(n, "spawned", ended=exited(n, exit_code=exit_code)) for n in (300, 301)]
    return only(standing_still.check, snapshot_of(waits, *ended, marks=marks))


def test_processes_that_took_an_empty_queue_for_the_end_are_named_with_that_line() -> None:
    finding = reads_after(draws())

    assert (
        "`self.current = self.tasks.get(block=False)` at source.py:44 next_group takes an empty "
        "queue for the end of the work"
    ) in finding.cause
    assert "most likely" in finding.cause
    assert "one end marker (None) for each process" in finding.advice
    assert "pickled" not in finding.advice


def test_an_end_in_the_file_of_the_reader_is_only_possibly_that_of_the_others() -> None:
    assert "possibly spawned 300 (300)" in reads_after(draws("/home/me/train.py")).cause


@pytest.mark.parametrize(
    ("marks", "exit_code"),
    [
        ((draws(), draws(line=90)), 0),  # which of them it was is not known
        ((draws("/home/me/train.py", "work", 8),), 0),  # the reader is in it itself
        ((draws(),), 1),
    ],
)
def test_an_end_by_an_empty_queue_is_not_told_where_something_else_may_be_it(
    marks: tuple[Mark, ...], exit_code: int
) -> None:
    assert "empty queue" not in reads_after(*marks, exit_code=exit_code).cause


def test_a_dead_end_says_what_would_have_ended_the_wait() -> None:
    alone = one(300, at_semaphore(77), "train.py:save:5")

    finding = only(standing_still.check, snapshot_of(alone, segments=(semaphore(77, 300),)))

    assert "No other process has this semaphore" in finding.cause
    assert "finally" in finding.advice


def test_a_subprocess_whose_errors_nobody_reads_is_named_with_that_output() -> None:
    writes = WaitedOn("pipe-write", "write", ("pipe:[500]",), (2,))
    feeds = WaitedOn("pipe-write", "write", ("pipe:[501]",), (5,))
    ours = (pipe(4, 500, False), pipe(5, 501, True))
    theirs = (pipe(0, 501, False), pipe(2, 500, True))
    jobs = [
        one(MAIN, feeds, "record.py:write:19", links=ours),
        one(300, writes, "encode.py:main:26", links=theirs),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "actor 0 (300) is blocked writing to its standard error" in finding.summary
    assert "which main (100) does not read" in finding.summary
    assert "subprocess.DEVNULL" in finding.advice


def test_a_subprocess_whose_output_nobody_reads_while_its_answer_is_awaited_is_named() -> None:
    writes = WaitedOn("pipe-write", "write", ("pipe:[500]",), (1,))
    asks = WaitedOn("socket-read", "recvfrom", ("socket:[700]",), (5,))
    ours, theirs = socket(5, 700, 701), socket(4, 701, 700)
    jobs = [
        one(MAIN, asks, "server.py:recv_exact:23", links=(pipe(6, 500, False), ours)),
        one(300, writes, "worker.py:main:61", links=(pipe(1, 500, True), theirs)),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "actor 0 (300) is blocked writing to its standard output" in finding.summary
    assert "which main (100) does not read, and main (100) waits for it" in finding.summary
    assert "does not come to what main (100) waits for" in finding.cause
    assert "no subprocess.PIPE" in finding.advice


def test_a_child_waits_for_its_sibling_rather_than_for_the_parent_that_joins_it() -> None:
    """The parent made the pair for them, keeps both ends open, and only joins."""
    asks = WaitedOn("socket-read", "read", ("socket:[700]",))
    mine, other = socket(5, 700, 701), socket(6, 701, 700)
    jobs = [
        one(MAIN, waits_for_child(300), *JOIN, links=(mine, other)),
        one(300, asks, "train.py:should_stop:51", links=(mine,)),
        one(301, at_semaphore(77), "data.py:report:38", links=(other,)),
    ]
    shared = (semaphore(77, 300, 301),)

    chains = wait_graph(Index(snapshot_of(*jobs, segments=shared))).chains

    assert chains[0].verdict == "cycle"
    assert chains[0].sentence == (
        "actor 0 waits for data on socket 700 <- actor 1 waits for semaphore 9:77"
    )


def test_workers_wait_for_the_parent_and_not_for_a_sibling_that_inherited_its_ends() -> None:
    """Each was forked with the parent's ends of the pairs before; only the parent uses them."""

    def asks(inode: int) -> WaitedOn:
        return WaitedOn("socket-read", "read", (f"socket:[{inode}]",))

    ours, theirs = (socket(6, 701, 700), socket(7, 703, 702)), (700, 702)
    jobs = [
        one(MAIN, waits_for_child(300), *JOIN, links=ours),
        one(300, asks(700), "data.py:env_worker:10", links=(socket(5, theirs[0], 701),)),
        one(301, asks(702), "data.py:env_worker:10", links=(socket(5, theirs[1], 703), ours[0])),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "main (100) waits for the exit of actor 0 (300), which waits for" in finding.summary
    assert "actor 1" not in finding.summary


def test_a_cycle_is_one_finding_wherever_another_process_enters_it() -> None:
    sends = WaitedOn("socket-write", "write", ("socket:[700]",))
    receives = WaitedOn("socket-read", "read", ("socket:[711]",))
    jobs = [
        one(MAIN, waits_for_child(301), *JOIN),
        one(300, sends, "train.py:ask:51", links=(socket(5, 700, 701), socket(6, 710, 711))),
        one(301, receives, "data.py:answer:38", links=(socket(5, 701, 700), socket(6, 711, 710))),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "actor 0 (300) and actor 1 (301) wait for each other" in finding.summary


def sweep(file: str, tries_s: float | None = None) -> list[Process]:
    """A worker keeps a lock while it waits for the pruner's answer, and the pruner for the lock.

    Args:
        file: What the lock is on.
        tries_s: The pause between two attempts for it; `None` if the kernel blocks them.
    """
    asks = WaitedOn("socket-read", "read", ("socket:[700]",))
    blocked = WaitedOn("unknown", "fcntl", (file,), (3,), holder=LockHolder(300, "python"))
    if tries_s is not None:
        blocked = WaitedOn("timer", "clock_nanosleep", timeout_s=tries_s)
    mine, other = socket(5, 700, 701), socket(6, 701, 700)
    data = FdLink(3, "file", file, None, True)
    held = replace(fds(9, links=(mine, data)), locks=(HeldLock(file, "fcntl", True, 300),))

    def tries(number: int, line: str, *links: FdLink, label: str) -> Process:
        at = thread(number, line, waits=blocked, still_s=STILL if tries_s is None else tries_s)
        opened = fds(9, links=(data, *links))
        return process(number, "spawned", label=label, fds=opened, threads=[at], segments=())

    asking = thread(300, "train.py:should_stop:51", waits=asks, still_s=STILL)
    return [
        one(MAIN, waits_for_child(300), *JOIN, links=(mine, other)),
        tries(299, "data.py:report:38", other, label="pruner"),
        process(300, "spawned", label="worker 0", fds=held, threads=[asking], segments=()),
        tries(301, "data.py:start:30", label="worker 1"),
    ]


def test_a_lock_on_a_file_that_is_kept_while_its_holder_waits_is_one_finding() -> None:
    """Main and worker 1 lead into the cycle at different points."""
    finding = only(standing_still.check, snapshot_of(*sweep("/tmp/trials.db")))

    assert finding.summary == (
        "worker 0 (300) holds the lock on /tmp/trials.db while it waits at train.py:51 should_stop,"
        " and pruner (299) waits for that lock at data.py:38 report"
    )
    assert "until commit() or rollback() is called" in finding.cause
    assert "Commit right after the statement at data.py:30 start" in finding.advice


def test_attempts_for_a_lock_that_is_kept_are_one_wait_however_short_their_pauses() -> None:
    """SQLite sleeps for a tenth of a second between two attempts."""
    file = "/tmp/trials.db"
    tries = Activity("waiting", f"the lock on {file}", "lock", (pid(300),))
    source = [
        SourceLine("/home/me/data.py", line, function, Statement(line, "self.db.commit()"))
        for line, function in ((38, "report"), (30, "start"))
    ]
    job = snapshot_of(*sweep(file, tries_s=0.1), source=tuple(source))

    finding = only(standing_still.check, with_shares(job, p299={tries: 1.0}, p301={tries: 1.0}))

    assert "worker 0 (300) holds the lock on /tmp/trials.db while it waits" in finding.summary
    # Without shares it is known by the holder: it has not run since it took the lock.
    assert only(standing_still.check, job).summary == finding.summary


def test_a_kept_lock_on_a_plain_file_is_not_called_a_transaction() -> None:
    finding = only(standing_still.check, snapshot_of(*sweep("/tmp/cache.lock")))

    assert "SQLite" not in finding.cause
    assert "Release the lock that is taken at data.py:30 start" in finding.advice


def test_a_holder_that_works_keeps_no_one_in_a_cycle() -> None:
    jobs = sweep("/tmp/trials.db")
    jobs[2] = replace(jobs[2], threads=(thread(300, "train.py:fit:8", state="R"),))

    assert found(standing_still.check, snapshot_of(*jobs)) == []


def test_a_program_at_its_end_that_joins_waiting_children_may_have_raised() -> None:
    at_exit = ("multiprocessing/process.py:join", "multiprocessing/util.py:_exit_function")
    asks = WaitedOn("socket-read", "read", ("socket:[700]",))
    jobs = [
        one(MAIN, waits_for_child(300), *at_exit, links=(socket(6, 701, 700),)),
        one(300, asks, "data.py:env_worker:10", links=(socket(5, 700, 701),)),
    ]

    finding = only(standing_still.check, snapshot_of(*jobs))

    assert "main (100) has come to its end and waits for actor 0 (300)" in finding.summary
    assert "by an exception, whose traceback is on standard error" in finding.cause
    assert "daemon=True" in finding.advice

    words = "exception: main; TimeoutError; env 0 is late"
    raised = log("exception", MAIN, words, where="main", type="TimeoutError")
    known = only(standing_still.check, snapshot_of(*jobs, log=(raised,)))

    assert "main (100) has raised TimeoutError and waits for actor 0 (300)" in known.summary
    assert any(words in each for each in known.evidence)
    assert "standard error" not in known.cause + known.advice


def test_a_child_whose_parent_has_closed_its_queues_and_joins_another_one_still_waits_for_it() -> (
    None
):
    at_exit = ("multiprocessing/process.py:join", "multiprocessing/util.py:_exit_function")
    gets = ("multiprocessing/queues.py:get", "data.py:serve:57")

    def worker(number: int, inode: int) -> Process:
        ends = (pipe(5, inode, False), pipe(6, inode, True))
        return one(number, WaitedOn("pipe-read", "read", (f"pipe:[{inode}]",)), *gets, links=ends)

    main_ = one(MAIN, waits_for_child(300), *at_exit)

    first, second = found(
        standing_still.check, snapshot_of(main_, worker(300, 500), worker(301, 501))
    )

    assert "and waits for actor 0 (300), which waits for it" in first.summary
    assert (
        "main (100) has come to its end, and actor 1 (301) still waits for an item from it"
        in second.summary
    )
    assert "never started" not in second.cause


def test_a_child_that_asks_its_parent_again_every_second_is_in_a_cycle_with_its_join() -> None:
    at_exit = ("multiprocessing/process.py:join", "multiprocessing/util.py:_exit_function")
    asks = WaitedOn("poll", "poll", ("socket:[700]",), timeout_s=0.4)
    doing = Activity("waiting", "data on socket 700", "socket", (pid(MAIN),), "data.py:10 run")
    own = thread(300, "data.py:run:10", waits=asks, waits_s=40.0)
    jobs = [
        one(MAIN, waits_for_child(300), *at_exit, links=(socket(6, 701, 700),)),
        replace(one(300, asks, links=(socket(5, 700, 701),)), threads=(own,)),
    ]
    job = with_shares(snapshot_of(*jobs), p300={doing: 1.0})

    def polled(read_ago_s: float, cpu_percent: float = 0.1) -> list[Finding]:
        past = history(
            {
                (300, "main_read_bytes"): (
                    Point(NOW_S - 100, 10.0),
                    Point(NOW_S - read_ago_s, 20.0),
                ),
                (300, "cpu_percent"): line(cpu_percent),
                (300, "voluntary_switches"): line(400.0, per_s=1.0),
            }
        )
        return found(standing_still.check, job, past)

    assert [each.summary for each in polled(40.0)] == [
        "main (100) has come to its end and waits for actor 0 (300), which waits for it"
    ]
    assert polled(3.0) == []
    assert polled(40.0, cpu_percent=30.0) == []


def server_of_two(*stack: str, accepted: bool = False, path: str = "") -> list[Process]:
    """A server that reads the connection of actor 1; actor 2 has sent it a request.

    Actor 1 waits for actor 2 at a barrier.
    """

    def receives(inode: int) -> WaitedOn:
        return WaitedOn("socket-read", "recvfrom", (f"socket:[{inode}]",))

    def address(here: int, there: int) -> str:
        own = path if here == 4000 else ""
        return f"unix {own}".rstrip() if path else f"tcp 127.0.0.1:{here} > 127.0.0.1:{there}"

    at = f"unix listens on {path}" if path else "tcp listens on 127.0.0.1:4000"
    listener = socket(3, 80, None, at)
    ends = [socket(4, 701, 700, address(4000, 51))]
    ends += [socket(5, 703, 702, address(4000, 52))] if accepted else []
    client = socket(4, 702, 703 if accepted else 80, address(52, 4000))
    return [
        main(threads=[thread(MAIN, state="R")], segments=()),
        one(300, receives(701), *stack, "train.py:serve:31", links=(listener, *ends)),
        one(301, at_semaphore(77), *BARRIER, links=(socket(4, 700, 701, address(51, 4000)),)),
        one(302, receives(702), "train.py:fetch:23", links=(client,)),
    ]


def test_a_server_that_is_in_one_connection_while_another_is_not_accepted_is_named() -> None:
    segments = (semaphore(77, 301, 302),)
    http = ("socket.py:readinto", "http/server.py:handle", "socketserver.py:serve_forever")

    finding = only(standing_still.check, snapshot_of(*server_of_two(*http), segments=segments))
    own = only(standing_still.check, snapshot_of(*server_of_two(), segments=segments))
    both = only(
        standing_still.check, snapshot_of(*server_of_two(*http, accepted=True), segments=segments)
    )
    at_path = server_of_two(path="/run/actors.sock")
    by_path = only(standing_still.check, snapshot_of(*at_path, segments=segments))

    assert finding.summary == (
        "actor 0 (300) serves one connection at a time and is in that of actor 1 (301), which "
        "sends nothing; actor 2 (302) waits to be accepted"
    )
    assert "it waits for the other parties of a barrier" in finding.cause
    assert (
        "ThreadingHTTPServer in place of HTTPServer for the server that runs at train"
        in finding.advice
    )
    assert "or read with selectors or asyncio at train.py:31 serve" in own.advice
    assert "serves one connection at a time" not in both.summary
    assert by_path.summary == finding.summary


LOCK, OF_STORE = "/data/.lock", "/home/me/data.py"


def flocked_twice(again: str, *within: str, held: str = "") -> Snapshot:
    """A process in flock() of a file that it has locked by another open file."""
    stack = (
        "data.py:acquire:17",
        "data.py:locked:29",
        "contextlib.py:__enter__",
        "data.py:compact:64",
        "data.py:add:61",
        "train.py:annotate:37",
    )
    blocked = WaitedOn("unknown", "flock", (LOCK,), (4,), holder=LockHolder(300, "python"))
    link = FdLink(3, "file", LOCK, None, True)
    own = process(
        300,
        "spawned",
        fds=replace(fds(4, links=[link]), locks=(HeldLock(LOCK, "flock", True, 300),)),
        segments=(),
        threads=[thread(300, *stack, waits=blocked)],
    )
    headers = tuple(Statement(57 + n, each) for n, each in enumerate(within))
    source = (
        SourceLine(OF_STORE, 64, "compact", Statement(64, again)),
        SourceLine(
            OF_STORE,
            61,
            "add",
            Statement(61, "self.compact()"),
            within=headers,
            held=(Statement(56, held),) if held else (),
        ),
    )
    return snapshot_of(main(), own, source=source)


@pytest.mark.parametrize(
    ("job", "outer"),
    [
        (
            flocked_twice("with locked(self.path):", "with locked(self.path):", "if is_long:"),
            "`with locked(self.path):` (data.py:57 add)",
        ),
        (
            flocked_twice("with locked(path) as lock:", "async with locked(self.path):"),
            "`async with locked(self.path):` (data.py:57 add)",
        ),
        (
            flocked_twice("self.lock.acquire()", held="self.lock.acquire()"),
            "`self.lock.acquire()` (data.py:56 add)",
        ),
    ],
)
def test_a_lock_on_a_file_that_is_taken_again_is_reported_with_both_lines(
    job: Snapshot, outer: str
) -> None:
    finding = only(standing_still.check, job)

    assert finding.summary == (
        f"spawned 300 waits at data.py:64 compact for the lock on {LOCK}, which it has taken "
        f"itself by {outer}, and is still in there"
    )
    assert "At data.py:61 add it calls compact(), which takes the same lock again" in finding.cause
    assert "two owners, also within one process" in finding.cause
    assert "Divide compact() into" in finding.advice
    assert "call the inner one from add()" in finding.advice
    assert "no stale lock file" in finding.advice


@pytest.mark.parametrize(
    "job",
    [
        flocked_twice("with locked(self.path):"),
        flocked_twice("with locked(self.path):", "with open(self.path) as file:"),
        flocked_twice("with open(self.path) as file:", "with open(self.path) as file:"),
    ],
)
def test_what_has_taken_a_lock_on_a_file_is_not_guessed(job: Snapshot) -> None:
    finding = only(standing_still.check, job)

    assert "which it has itself" in finding.summary
    assert "still inside of" not in finding.cause
    assert "call from there only what expects it held" in finding.advice
