"""Tasks of a thread pool that wait for further tasks of it, with no thread left for these."""

from __future__ import annotations

import ast

import pytest
from msgspec.structs import replace

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Snapshot, Thread
from mpwatch.model.source_code import Ending, Mark, SourceLine, Statement
from tests.builders.snapshots import MAIN, found, main, pid, process, snapshot_of, thread

FILE = "/home/me/data.py"
STAGES = """\
pool = ThreadPoolExecutor({workers}, thread_name_prefix="stage")

def write(self, rows):
    for row in rows:
        self.wire.put(row)

def read(self):
    while self.wire.get():
        self.replies.put(1)

def both(self, rows):
    writes = {inner}.submit(self.write, rows)
    reads = {inner}.submit(self.read)
    return writes.result(), reads.result()

def stream(self, rows):
    pool.submit(self.both, rows)
    while self.replies.get():
        yield 1
"""
WAITS = WaitedOn("futex", "futex", ("futex 0x7f00",), futex_command=9)
IN_POOL = ("concurrent/futures/thread.py:run", "concurrent/futures/thread.py:_worker")
RESULT = ("threading.py:wait", "concurrent/futures/_base.py:result", "data.py:both:14")
ITEM = ("threading.py:wait", "queue.py:get", "data.py:read:8")
ENDS = Ending(FILE, "write", Statement(5, "self.wire.put(row)"))


def stages(workers: str = "3", inner: str = "pool") -> tuple[Mark, ...]:
    text = STAGES.format(workers=workers, inner=inner)
    return tuple(marks(FILE, ParsedFile(tuple(text.splitlines()), ast.parse(text))))


def of_pool(number: int, *stack: str, still_s: float = 40.0) -> Thread:
    name = f"stage_{number}"
    return thread(201 + number, *stack, *IN_POOL, name=name, waits=WAITS, still_s=still_s)


def job(
    *threads: Thread, source: tuple[Mark, ...] = stages(), ends: tuple[Ending, ...] = (ENDS,)
) -> Snapshot:
    accepts = thread(200, "socket.py:accept", "serve.py:main:8", still_s=40.0)
    line = SourceLine(FILE, 8, "read", Statement(8, "while self.wire.get():"), ended_by=ends)
    own = [accepts, *threads]
    server = process(200, "spawned", label="server", threads=own, thread_count=len(own))
    joins = thread(MAIN, "train.py:main:57", waits=WaitedOn("timer", "clock_nanosleep"))
    return snapshot_of(main(threads=[joins]), server, marks=source, source=(line,))


def taken(snapshot: Snapshot) -> list[Finding]:
    return [e for e in found(no_progress.check, snapshot) if e.subject == "executor"]


ALL = (of_pool(0, *RESULT), of_pool(1, *RESULT), of_pool(2, *ITEM))


def test_an_executor_whose_tasks_wait_for_others_in_its_queue_is_a_deadlock() -> None:
    (finding,) = taken(job(*ALL))

    assert (finding.severity, finding.process) == (Severity.CRITICAL, pid(200))
    assert finding.summary == (
        "server (200) has a deadlock in its ThreadPoolExecutor pool: all its 3 threads are in "
        "tasks that wait, 2 of them at data.py:14 both for tasks that they have submitted to the "
        "same executor"
    )
    assert "data.py:12 both, data.py:13 both" in finding.cause
    assert "3 threads and no more" in finding.cause
    assert "data.py:17 stream" in finding.advice
    assert "More max_workers only move the limit" in finding.advice
    assert "2 of them are at data.py:14 both" in finding.evidence


def test_an_executor_whose_tasks_all_wait_for_results_has_no_other_wait() -> None:
    (finding,) = taken(job(*ALL[:2], replace(of_pool(2, *RESULT))))

    assert "all of them at data.py:14 both" in finding.summary


@pytest.mark.parametrize(
    "snapshot",
    [
        # One thread is idle, runs, has just begun to wait, or may still be started.
        job(*ALL[:2], of_pool(2)),
        job(*ALL[:2], replace(ALL[2], waits_on=None)),
        job(*ALL[:2], of_pool(2, *ITEM, still_s=2.0)),
        job(*ALL, source=stages(workers="4")),
        job(*ALL, source=stages(workers="count")),
        # The tasks go to another executor, or another thread ends what a task waits for.
        job(*ALL, source=stages(inner="inner")),
        job(*ALL, ends=(ENDS, Ending(FILE, "main", Statement(30, "self.wire.put(None)")))),
        job(*ALL, ends=()),
    ],
)
def test_an_executor_that_may_go_on_is_none(snapshot: Snapshot) -> None:
    assert taken(snapshot) == []
