"""Lines that do the same again in each round: what findings say of them, and when nothing."""

from __future__ import annotations

import ast

import pytest
from msgspec.structs import replace

from mpwatch.collect.source.call_graph import program_of
from mpwatch.collect.source.growth.holders import growing_in
from mpwatch.collect.source.same_again import same_again
from mpwatch.collect.source.syntax import ParsedFile
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source.costs import costly, with_copies
from mpwatch.diagnose.rules.throughput import bottleneck_process, pickling_cost
from mpwatch.model.account import PICKLING, Activity, Bucket, ProcessAccount
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.source_code import SourceLine, Statement
from tests.builders.accounts import with_shares
from tests.builders.snapshots import MAIN, main, only, snapshot_of, thread

DATA = """\
import json
import numpy as np

TABLE = "table.json"


def encode(text):
    with open(TABLE) as opened:
        table = json.load(opened)
    return [table[word] for word in text]


def main(lines, pool, frame):
    for line in lines:
        encode(line)
        use(line)
    for line in range(100):
        pool.submit(work, frame, line)


class Log:
    def __init__(self):
        self.events = []

    def add(self, event):
        self.events.append(event)
        for each in self.events:
            weigh(each)


def weigh(event):
    return sum(event)


def follow(agent):
    log = Log()
    while True:
        log.add(agent.run())
"""
PATH = "/home/me/data.py"
READS = Activity("computing", "Python code", place="data.py:9 encode")
USES = Activity("computing", "Python code", place="data.py:16 main")
WEIGHS = Activity("computing", "Python code", place="data.py:32 weigh")
OF_READS = ("json/__init__.py:load", "data.py:encode:9", "data.py:main:15")
OF_WALK = ("data.py:weigh:32", "data.py:add:28", "data.py:follow:38")


def line(number: int, function: str) -> SourceLine:
    return SourceLine(
        PATH, number, function, Statement(number, DATA.splitlines()[number - 1].strip())
    )


LINES = (
    line(9, "encode"),
    line(15, "main"),
    line(16, "main"),
    line(18, "main"),
    line(28, "add"),
    line(32, "weigh"),
)


def job(stack: tuple[str, ...], **does: dict[Activity, float]) -> Snapshot:
    program = program_of([(PATH, ParsedFile(tuple(DATA.splitlines()), ast.parse(DATA)))])
    assert program is not None
    again = (*same_again(program), *growing_in(program)[1])
    seen = snapshot_of(main(threads=[thread(MAIN, *stack)]), source=LINES, again=again)
    return with_shares(seen, **does)


def test_a_file_that_each_round_reads_is_told_with_why_it_is_the_same_and_where_to_move_it() -> (
    None
):
    seen = job(OF_READS, p100={READS: 0.8, USES: 0.2})

    cost = costly(Index(seen), "data.py:9 encode")

    assert cost is not None
    assert cost.words == "json.load(opened) reads all of the same file again each time"
    assert cost.cause == (
        ": TABLE is set once, in line 4 of data.py, so that each round of `for line in lines:` "
        "(data.py:14 main) reads the same file again, unless something writes it "
        "meanwhile."
    )
    assert "before the loop of line 14, and pass it to encode(), or by functools.cache" in (
        cost.advice
    )
    finding = only(bottleneck_process.check, seen)
    assert finding.severity is Severity.INFO
    assert finding.summary.startswith("main (100) spends its time at data.py:9 encode: json.load")
    assert with_copies(Index(seen), finding) == finding


def test_a_file_that_is_read_once_and_for_long_is_not_told() -> None:
    seen = job(OF_READS, p100={READS: 0.8, USES: 0.2})
    index = Index(_in_turn(seen, USES, READS))

    assert costly(index, "data.py:9 encode") is None


def _in_turn(seen: Snapshot, first: Activity, then: Activity) -> Snapshot:
    """A thread that has done one thing, and then another one until now."""
    ((identity, account),) = seen.account.processes.items()
    tally = account.main.buckets[0].tally
    buckets = tuple(
        Bucket(
            each.number,
            tally._replace(seen={(first if n < 4 else then): sum(tally.seen.values())}),
        )
        for n, each in enumerate(account.main.buckets)
    )
    threads = (account.uncounted[0]._replace(buckets=buckets),)
    changed = ProcessAccount(identity, account.at_s, account.readings, threads, (0,))
    return replace(seen, account=replace(seen.account, processes={identity: changed}))


def test_a_file_is_not_told_where_another_loop_reads_it_now() -> None:
    seen = job(
        ("json/__init__.py:load", "data.py:encode:9", "data.py:other:50"),
        p100={READS: 0.8, USES: 0.2},
    )

    assert costly(Index(seen), "data.py:9 encode") is None


def test_a_walk_over_what_only_grows_is_told_also_below_it() -> None:
    seen = job(OF_WALK, p100={WEIGHS: 0.9, USES: 0.1})

    cost = costly(Index(seen), "data.py:32 weigh")

    assert cost is not None
    assert cost.words == (
        "all of self.events is gone through at data.py:27 add each time, and that only grows"
    )
    assert cost.cause.startswith(
        ": `self.events.append(event)` at data.py:26 add adds to self.events in the same rounds"
    )
    assert "`while True:` (data.py:37 follow) takes longer than the one before" in cost.cause
    told = with_copies(
        Index(seen),
        Finding(
            rule="hot-spot",
            severity=Severity.INFO,
            summary="main is at data.py:28 add",
            evidence=(),
            cause="",
            advice="",
        ),
    )
    assert told.summary == (
        "main is at data.py:28 add: all of self.events is gone through at data.py:27 add each "
        "time, and that only grows"
    )


def test_a_line_that_something_else_calls_is_in_no_walk() -> None:
    seen = job(("data.py:weigh:32", "data.py:main:15"), p100={WEIGHS: 0.9, USES: 0.1})

    assert costly(Index(seen), "data.py:32 weigh") is None


@pytest.mark.parametrize(
    ("place", "is_told"), [("data.py:18 main", True), ("data.py:16 main", False)]
)
def test_what_is_pickled_again_for_each_task_is_named(place: str, is_told: bool) -> None:
    pickles = Activity("computing", PICKLING, place=place)
    seen = job(("data.py:main:18",), p100={pickles: 0.7, USES: 0.3})

    finding = only(pickling_cost.check, seen)

    assert ("with frame in each, which no round changes" in finding.summary) is is_told
    assert ("`pool.submit(work, frame, line)` at data.py:18 main sends" in finding.cause) is is_told
    assert finding.advice.startswith("Give what is the same for all") is is_told
