"""Ranks that wait to join the process group."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.rules.distributed import rank_stuck_in_collective
from mpwatch.model.findings import Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.snapshots import MAIN, found, main, only, process, snapshot_of, thread
from tests.builders.waits import C10D

AGENT = process(MAIN, "launcher")
READS = WaitedOn("poll", "poll", ("socket:[9]",), timeout_s=1800.0)
POLLS = WaitedOn("timer", "clock_nanosleep", timeout_s=0.01)


def joining(number: int, waits_s: float | None, wait: Any = READS, **fields: Any) -> Process:
    stack = (
        "torch/distributed/rendezvous.py:_create_c10d_store",
        f"{C10D}:init_process_group",
        "train.py:worker:8",
    )
    own = thread(300 + number, *stack, waits=wait, still_s=None, waits_s=waits_s, **fields)
    return process(
        300 + number,
        "spawned",
        threads=[own],
        environment={"WORLD_SIZE": "4", "MASTER_ADDR": "node0"},
    )


def test_ranks_that_all_wait_to_join_are_named() -> None:
    finding = only(
        rank_stuck_in_collective.check, snapshot_of(main(), joining(0, 36.0), joining(1, 35.0))
    )

    assert finding.severity is Severity.INFO
    assert finding.summary == "2 ranks wait in init_process_group for others that have not joined"
    assert "35 s" in finding.evidence[0]
    assert "WORLD_SIZE is 4, MASTER_ADDR is node0" in finding.evidence[-1]


def test_the_rank_that_runs_the_store_has_waited_for_as_long_as_the_others() -> None:
    store = joining(0, 1.5, POLLS, stack_age_s=2.0)
    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), store, joining(1, 35.0)))

    assert "spawned 300 (300) and spawned 301 (301) in init_process_group" in finding.evidence[0]
    assert (
        len(found(rank_stuck_in_collective.check, snapshot_of(main(), joining(0, 31.0, POLLS))))
        == 1
    )


def test_a_rank_that_was_started_by_hand_and_waits_to_join_is_named() -> None:
    alone = process(
        MAIN,
        "main",
        rank=1,
        environment={"WORLD_SIZE": "4"},
        threads=joining(MAIN - 300, 40.0).threads,
    )

    finding = only(rank_stuck_in_collective.check, snapshot_of(alone))

    assert finding.summary.endswith("waits in init_process_group for ranks 0, 2, 3 of 4")


def test_a_rank_that_has_not_begun_to_join_is_named() -> None:
    waiting = [replace(joining(n, 40.0), role="rank") for n in range(2)]
    late = process(302, "rank", threads=[thread(302, "train.py:download:5")])

    finding = only(rank_stuck_in_collective.check, snapshot_of(AGENT, *waiting, late))

    assert finding.severity is Severity.INFO
    assert finding.process == late.process
    assert finding.summary == (
        "2 ranks wait in init_process_group for rank 302 (302), which is at train.py:5 download"
    )
    assert "train.py:5 download" in finding.evidence[1]


def test_ranks_that_wait_to_join_for_minutes_are_a_warning() -> None:
    job = snapshot_of(main(), joining(0, 150.0), joining(1, 130.0))

    assert only(rank_stuck_in_collective.check, job).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("waited_s", "severity"), [(40.0, Severity.WARNING), (130.0, Severity.CRITICAL)]
)
def test_a_rank_that_was_never_started_on_this_machine_is_named_by_its_number(
    waited_s: float, severity: Severity
) -> None:
    here = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"}
    ranks = [
        process(300 + n, "rank", rank=n, environment=here, threads=joining(n, waited_s).threads)
        for n in range(2)
    ]

    finding = only(rank_stuck_in_collective.check, snapshot_of(main(), *ranks))

    assert finding.severity is severity
    assert finding.summary == "2 ranks wait in init_process_group for rank 2 of 3"
    assert "MASTER_ADDR is this machine alone" in finding.cause


@pytest.mark.parametrize(
    "ranks",
    [
        (joining(0, 36.0), joining(1, 12.0)),
        (joining(0, 36.0), joining(1, None)),
        (joining(0, 36.0), joining(1, 36.0, None)),
        (joining(0, 1.5, POLLS), joining(1, 12.0)),
        (joining(0, 36.0), joining(1, 36.0, stack_age_s=50.0)),
        (joining(0, 36.0), process(301, "spawned", threads=[thread(301, "train.py:load")])),
    ],
)
def test_ranks_that_have_just_begun_to_join_are_quiet(ranks: tuple[Process, ...]) -> None:
    assert found(rank_stuck_in_collective.check, snapshot_of(main(), *ranks)) == []


CHOSEN = Mark(
    "own-rendezvous",
    "/home/me/train.py",
    "worker",
    "find_free_port()",
    Statement(6, 'os.environ["MASTER_PORT"] = str(find_free_port())'),
)


def meeting(
    mark: Mark = CHOSEN, text: str = 'dist.init_process_group("gloo", rank=rank)', count: int = 2
) -> str:
    line = SourceLine(CHOSEN.file, 8, "worker", Statement(8, text))
    ranks = [joining(n, 40.0) for n in range(count)]
    job = snapshot_of(main(), *ranks, source=(line,), marks=(mark,))
    finding = only(rank_stuck_in_collective.check, job)
    return f"{finding.summary}. {finding.cause} {finding.advice}"


def test_ranks_that_each_choose_a_port_for_themselves_do_not_meet() -> None:
    words = meeting()

    assert "each where it has chosen itself to meet the others" in words
    assert (
        '`os.environ["MASTER_PORT"] = str(find_free_port())` at train.py:6 worker itself, which '
        "takes it from find_free_port(): that is another one in each process"
    ) in words
    assert "Choose it once, before the ranks are started" in words


@pytest.mark.parametrize(
    "words",
    [
        meeting(CHOSEN._replace(function="main")),
        meeting(CHOSEN._replace(statement=Statement(9, "x"))),
        meeting(text='dist.init_process_group("gloo", init_method="file:///shared/x", rank=r)'),
        meeting(text='dist.init_process_group("gloo", store=store, rank=rank)'),
        meeting(count=1),
    ],
    ids=["by the parent", "not yet run", "another place", "a store", "one rank"],
)
def test_a_port_that_was_chosen_once_or_is_not_used_is_no_reason(words: str) -> None:
    assert "chosen" not in words
