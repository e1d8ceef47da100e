"""Ranks of NCCL that stand still: what their stacks and NCCL's own RAS tell."""

from __future__ import annotations

import pytest

from mpwatch.collect.job.nccl_ras import PORT, ask, find_listener
from mpwatch.collect.process.procfs import stat_of
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.oneshot import OneShotOptions, watch_for
from tests import procfs
from tests.conftest import Program, Start

# RAS of all jobs of a machine listens on one port.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nccl")]

WITHIN_S = 120.0


def first_of(program: Program, rule: str) -> Finding:
    """The first finding of a rule within `WITHIN_S`, from outside."""
    found: list[Finding] = []

    def look(snapshot: Snapshot) -> None:
        found.extend(each for each in snapshot.findings if each.rule == rule)

    watch_for(
        stat_of(program.pid).process, WITHIN_S, OneShotOptions(hook="use"),
        stop=lambda: bool(found), each=look,
    )  # fmt: skip
    assert found, program.lines
    return found[0]


def test_the_rank_that_others_wait_for_is_named(start: Start) -> None:
    program = start("nccl_ranks.py", "late")
    program.wait_for("ready")

    finding = first_of(program, "rank-stuck-in-collective")

    assert "rank 1" in finding.summary
    assert "prepare_batch" in " ".join((finding.summary, *finding.evidence))


def test_ranks_in_different_collectives_are_distinguished(start: Start) -> None:
    program = start("nccl_ranks.py", "mismatch")
    program.wait_for("ready")

    finding = first_of(program, "collective-mismatch")

    assert "all 2 ranks wait for the GPU" in finding.summary
    assert "has not launched Broadcast 1" in finding.summary
    assert any(line.startswith("NCCL RAS: ") for line in finding.evidence)


def test_ranks_that_train_are_not_warned_about(start: Start) -> None:
    program = start("nccl_ranks.py")
    program.wait_for("ready")

    last = watch_for(stat_of(program.pid).process, 15, OneShotOptions(hook="use"))

    assert last is not None
    assert [f.rule for f in last.findings if f.severity is not Severity.INFO] == []


def test_ras_of_a_running_job_answers(start: Start) -> None:
    program = start("nccl_ranks.py", "late")
    program.wait_for("ready")
    ranks = [stat_of(pid).process for pid in procfs.descendants(program.pid)]

    listener = find_listener(ranks, PORT)

    assert listener is not None
    answer = ask(listener)
    assert answer.version.split(".")[0] == "2"
    assert answer.total == 1
