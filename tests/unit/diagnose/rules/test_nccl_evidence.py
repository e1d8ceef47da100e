"""What NCCL RAS says stands as evidence in the findings about ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mpwatch.collect.job.nccl_ras import parse
from mpwatch.diagnose.rules.distributed import collective_mismatch, rank_stuck_in_collective
from mpwatch.diagnose.rules.hangs import no_progress
from mpwatch.model.collectives import NcclAnswer, NcclCommunicator, NcclPart, NcclStatus
from mpwatch.model.findings import Severity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Process, Snapshot
from tests.builders.snapshots import (
    NOW_S,
    fds,
    found,
    main,
    maps,
    only,
    pid,
    process,
    snapshot_of,
    socket,
    thread,
    with_threads,
)

DATA = Path(__file__).parents[3] / "data" / "nccl-ras"
C10D = "torch/distributed/distributed_c10d.py"


def rank(number: int, *stack: str, library: str = "libnccl.so.2", **more: Any) -> Process:
    return process(
        300 + number,
        "rank",
        threads=[thread(300 + number, *stack), thread(350 + number, name="pt_nccl_watchdg")],
        label=f"rank {number}",
        rank=number,
        maps=maps(400, libraries=(library,)),
        **more,
    )


def status(answer: str | NcclAnswer, *, since_s: float = NOW_S, at_s: float = NOW_S) -> NcclStatus:
    found = parse((DATA / answer).read_bytes()) if isinstance(answer, str) else answer
    return NcclStatus(pid(300), at_s, found, since_s)


def job(nccl: NcclStatus | None, library: str = "libnccl.so.2") -> Snapshot:
    """Ranks 0 to 2 wait in an all_reduce; rank 3 writes a file."""
    inside = [rank(n, f"{C10D}:all_reduce", "train.py:step:40", library=library) for n in range(3)]
    return snapshot_of(main(), *inside, rank(3, "train.py:save:80", library=library), nccl=nccl)


def evidence(nccl: NcclStatus | None, library: str = "libnccl.so.2") -> list[str]:
    finding = only(rank_stuck_in_collective.check, job(nccl, library))
    return [line for line in finding.evidence if "NCCL RAS" in line]


BEHIND = (
    "NCCL RAS: communicator 0xae94423cfbb2ef4a: ranks 0-2 at AllReduce count 48121, rank 3 at 48120"
)


def test_the_rank_that_has_launched_fewer_collectives_is_evidence() -> None:
    assert evidence(status("2.30.7-behind.json")) == [BEHIND]


def test_it_is_said_for_how_long_the_answers_were_the_same() -> None:
    assert evidence(status("2.30.7-behind.json", since_s=NOW_S - 20.0)) == [
        f"{BEHIND} (the same in all answers of 20 s)"
    ]


def test_a_rank_that_does_not_respond_is_evidence() -> None:
    assert evidence(status("2.29.1-missing.json")) == [
        "NCCL RAS: rank 1 of communicator 0xae94423cfbb2ef4a is not responding (process 1524345 on "
        "172.16.64.245)"
    ]


def test_dead_and_unresponsive_ranks_are_distinguished() -> None:
    assert evidence(status("2.28.7-missing.json")) == [
        "NCCL RAS: rank 2 of communicator 0xcf264af53edbe986 is considered dead (process 302 on "
        "172.16.64.245)",
        "NCCL RAS: rank 3 of communicator 0xcf264af53edbe986 is not responding (process 303 on "
        "172.16.64.246)",
    ]


def test_errors_and_status_are_evidence() -> None:
    name = "communicator 0xae94423cfbb2ef4a"
    assert evidence(status("2.30.7-errors.json")) == [
        f"NCCL RAS: rank 3 of {name} responds, but is not part of it (not yet, or no longer) "
        "(process 303 on 172.16.64.245)",
        f"NCCL RAS: rank 1 of {name} reported: Unhandled CUDA error (process 301 on 172.16.64.245)",
        f"NCCL RAS: rank 2 of {name} reported: Remote process error (process 302 on 172.16.64.245)",
        f"NCCL RAS: {name}: ranks 0-1 at status RUNNING, rank 2 at ABORT",
    ]


def test_older_versions_say_less() -> None:
    behind, missing = status("2.24.3-behind.txt"), status("2.24.3-missing.txt")

    assert evidence(behind) == [
        "NCCL RAS: communicator 0x27a079b828ff1a75: ranks 1, 6, 8-31 at collective count 6650, "
        "ranks 0, 2-5, 7 at 6649"
    ]
    assert evidence(missing) == [
        "NCCL RAS: rank 21 of communicator 0xcf264af53edbe986 has sent no data",
        "NCCL RAS: process 3487984 on 172.16.64.213, with GPU 5, is not responding",
    ]


def test_that_no_rank_differs_is_evidence_as_well() -> None:
    (line,) = evidence(status("2.30.7-equal.json"))

    assert "all ranks of all communicators respond" in line


def test_many_lines_are_cut() -> None:
    lines = evidence(status("2.26.2-all.txt"))
    assert len(lines) == 6

    first = parse((DATA / "2.26.2-all.txt").read_bytes()).communicators[0]
    lines = evidence(status(NcclAnswer("2.26.2", 8, (first,) * 8)))

    assert len(lines) == 6
    assert lines[-1] == "NCCL RAS: 43 more such lines"


@pytest.mark.parametrize(
    "nccl",
    [None, status("2.30.7-behind.json", at_s=NOW_S - 90.0), status(NcclAnswer("2.30.7", 0))],
    ids=["not asked", "old", "without communicators"],
)
def test_without_an_answer_nothing_is_said(nccl: NcclStatus | None) -> None:
    assert evidence(nccl) == []


def test_ranks_without_nccl_have_no_such_evidence() -> None:
    assert evidence(status("2.30.7-behind.json"), "libgloo.so") == []


def test_ranks_in_different_collectives_have_the_same_evidence() -> None:
    ranks = [rank(0, f"{C10D}:all_reduce", "train.py:a:1"), rank(1, f"{C10D}:barrier")]

    finding = only(
        collective_mismatch.check, snapshot_of(main(), *ranks, nccl=status("2.30.7-behind.json"))
    )

    assert finding.evidence[-1] == BEHIND


def test_a_rank_that_waits_outside_of_collectives_has_it() -> None:
    receives = WaitedOn("socket-read", "recvfrom", ("socket:[77]",), (7,))
    outside = fds(5, links=[socket(7, 77, None, "tcp 10.0.0.1:40000 > 10.0.0.2:80")])
    alone = rank(3, "train.py:save:80", fds=outside)
    alone = with_threads(alone, [replace(alone.threads[0], waits_on=receives)])

    finding = only(no_progress.check, snapshot_of(main(), alone, nccl=status("2.30.7-behind.json")))

    assert finding.subject == "303"
    assert finding.evidence[-1] == BEHIND


def in_native_code(nccl: NcclStatus) -> Snapshot:
    """Ranks that wait for their GPUs: nothing in their stacks shows a collective."""
    ranks = [rank(n, "train.py:log_loss:44") for n in range(4)]
    return snapshot_of(main(), *ranks, nccl=nccl)


@pytest.mark.parametrize(("same_s", "severity"), [(20.0, Severity.INFO), (61.0, Severity.WARNING)])
def test_where_only_nccl_tells_the_late_rank_is_a_finding(
    same_s: float, severity: Severity
) -> None:
    told = status("2.30.7-behind.json", since_s=NOW_S - same_s)

    finding = only(rank_stuck_in_collective.check, in_native_code(told))

    assert finding.severity is severity
    assert finding.summary == (
        "rank 3 of communicator 0xae94423cfbb2ef4a has launched fewer collectives than the others"
    )
    assert finding.evidence[0].startswith(BEHIND)
    assert "has not launched AllReduce 48121" in finding.cause


def test_where_only_nccl_tells_a_rank_without_response_is_a_finding() -> None:
    told = status("2.28.7-missing.json", since_s=NOW_S - 20.0)

    finding = only(rank_stuck_in_collective.check, in_native_code(told))

    assert finding.summary == (
        "ranks 2-3 of communicator 0xcf264af53edbe986 do not respond to NCCL RAS"
    )


@pytest.mark.parametrize(
    ("answer", "same_s"),
    [
        ("2.30.7-behind.json", 0.0),
        ("2.30.7-equal.json", 90.0),
        ("2.30.7-errors.json", 90.0),
        ("2.26.2-equal.txt", 90.0),
    ],
)
def test_one_answer_or_equal_ranks_make_no_finding(answer: str, same_s: float) -> None:
    job = in_native_code(status(answer, since_s=NOW_S - same_s))

    assert found(rank_stuck_in_collective.check, job) == []


def test_ranks_that_differ_in_several_kinds_of_collectives_make_no_finding() -> None:
    parts = [NcclPart(what, value, 2, (0, 1)) for what in ("AllReduce", "Reduce") for value in "12"]
    answer = NcclAnswer("2.30.7", 1, (NcclCommunicator("0x1", 4, parts=tuple(parts)),))
    job = in_native_code(status(answer, since_s=NOW_S - 90.0))

    assert found(rank_stuck_in_collective.check, job) == []
