"""Ranks that lower their learning rates by values of their own."""

from __future__ import annotations

from mpwatch.diagnose.rules.results import ranks_decide_alone
from mpwatch.model.findings import Severity
from mpwatch.model.source_code import Mark, Statement
from tests.builders.snapshots import found, main, only, process, snapshot_of

STEPS = Mark(
    "own-value", "/home/me/train.py", "run", "val_loss",
    Statement(91, "self.scheduler.step(val_loss)"),
)  # fmt: skip
RANKS = [process(300 + n, "rank", label=f"rank {n}", rank=n) for n in range(2)]


def test_the_statement_and_its_value_are_named_with_what_would_tell() -> None:
    finding = only(ranks_decide_alone.check, snapshot_of(main(), *RANKS, marks=(STEPS,)))

    assert finding.severity is Severity.INFO
    assert finding.summary == (
        "the ranks may train with different learning rates: `self.scheduler.step(val_loss)` at "
        "train.py:91 run decides by a value that each rank computes for itself"
    )
    assert "it runs on rank 0 (300) and rank 1 (301)" in finding.evidence
    assert "If all ranks validate all of the same data" in finding.cause
    assert "log optimizer.param_groups[0]['lr'] on every rank" in finding.advice


def test_one_process_or_a_program_without_such_a_statement_has_no_finding() -> None:
    assert found(ranks_decide_alone.check, snapshot_of(main(), marks=(STEPS,))) == []
    assert found(ranks_decide_alone.check, snapshot_of(main(), RANKS[0], marks=(STEPS,))) == []
    assert found(ranks_decide_alone.check, snapshot_of(main(), *RANKS)) == []


def test_a_state_that_one_rank_alone_loads_is_told_as_possible() -> None:
    loads = Mark(
        "loads-alone",
        "resume.py",
        "load",
        "optimizer, self.scheduler; if rank == 0: in line 24",
        Statement(27, 'optimizer.load_state_dict(state["optimizer"])'),
    )

    finding = only(ranks_decide_alone.check, snapshot_of(main(), *RANKS, marks=(loads,)))

    assert finding.severity is Severity.INFO
    assert "different states of optimizer, self.scheduler" in finding.summary
    assert "resume.py:27 load" in finding.summary
    assert finding.evidence[0].startswith("`if rank == 0: in line 24` decides who loads")
    assert "broadcast the state of optimizer, self.scheduler" in finding.advice
    assert found(ranks_decide_alone.check, snapshot_of(main(), RANKS[0], marks=(loads,))) == []
