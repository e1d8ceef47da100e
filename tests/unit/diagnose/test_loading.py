"""Processes that make their batches themselves, and those that read more than they use."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.throughput.loading import reads_all
from mpwatch.diagnose.rules.throughput import loader_starvation
from mpwatch.model.account import Activity
from mpwatch.model.ids import Role
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import Mark, SourceLine, Statement
from tests.builders.accounts import COMPUTES, SLEEPS, with_shares
from tests.builders.snapshots import found, main, only, process, snapshot_of, thread

FETCH = "torch/utils/data/_utils/fetch.py:fetch"
NEXT = "torch/utils/data/dataloader.py:_next_data"
LOADS = ("train.py:read:30", "train.py:__iter__:52", FETCH, NEXT, "train.py:fit:70")
READS = Activity("sleeping", place="train.py:30 read")
PART = Mark(
    "reads-all",
    "/home/me/train.py",
    "__iter__",
    "self.rows",
    Statement(53, "if i % self.n == self.k:"),
)


def rank(number: int, *stack: str, role: Role = "rank") -> Process:
    own = 300 + number
    threads = (thread(own, *(stack or LOADS), still_s=0.1),)
    return process(own, role, threads=threads, label=f"rank {number}")


def job(
    *ranks: Process,
    share: float = 0.9,
    marks: tuple[Mark, ...] = (),
    at: str = "for i, x in enumerate(self.rows):",
) -> Snapshot:
    """Ranks whose line 52, in `__iter__`, is this."""
    shares = {f"p{each.pid}": {READS: share, COMPUTES: 1 - share} for each in ranks}
    source = (SourceLine("/home/me/train.py", 52, "__iter__", Statement(52, at)),)
    taken = snapshot_of(main(), *ranks, marks=marks, source=source)
    return with_shares(taken, p100={SLEEPS: 1.0}, **shares)


def test_ranks_that_load_their_batches_themselves_are_named_with_the_line() -> None:
    finding = only(loader_starvation.check, job(rank(0), rank(1)))

    assert finding.summary == (
        "rank 0 (300) and rank 1 (301) load their data without workers for 90% of the time, at "
        "train.py:30 read"
    )
    assert "num_workers=0" in finding.cause


def test_ranks_that_all_read_the_same_and_keep_a_part_are_reported_with_the_statement() -> None:
    finding = only(loader_starvation.check, job(rank(0), rank(1), rank(2), marks=(PART,)))

    assert finding.summary.endswith("at train.py:30 read: each of them reads all of self.rows")
    assert finding.cause.startswith(
        "Each of 3 processes reads all of self.rows and drops what is not its part, at `if i % "
        "self.n == self.k:` at train.py:53 __iter__: every item is read and prepared 3 times"
    )
    assert finding.advice.startswith("Divide before reading")


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param(job(rank(0), share=0.4), id="a step takes as long"),
        pytest.param(job(rank(0, "train.py:read:30", "train.py:fit:70")), id="no DataLoader"),
        pytest.param(job(rank(0, *LOADS[:3], role="loader-worker")), id="a worker"),
    ],
)
def test_other_processes_do_not_load_their_batches_themselves(healthy: Snapshot) -> None:
    assert found(loader_starvation.check, healthy) == []


SAMPLES = (
    "train.py:read:30",
    "train.py:__iter__:60",
    "torch/utils/data/dataloader.py:_next_index",
    "torch/utils/data/dataloader.py:_try_put_index",
    "train.py:fit:70",
)


def test_a_sampler_that_reads_items_is_reported_with_the_workers_that_wait() -> None:
    workers = [process(400 + n, parent=300) for n in range(2)]
    idle = Activity("idle", "work")
    job = with_shares(
        snapshot_of(main(), rank(0, *SAMPLES), *workers),
        p100={SLEEPS: 1.0},
        p300={READS: 0.9, COMPUTES: 0.1},
        p400={idle: 1.0},
        p401={idle: 1.0},
    )

    finding = next(each for each in found(loader_starvation.check, job))

    assert finding.subject == "sampler"
    assert finding.summary == (
        "rank 0 (300) spends 90% of the time in the sampler, at train.py:30 read, while "
        "loader-worker 400 (400) and loader-worker 401 (401) wait for work"
    )
    assert "train.py:60 __iter__ does the work of train.py:30 read" in finding.cause


def test_one_process_or_one_that_only_deals_indices_does_not_read_for_others() -> None:
    alone = job(rank(0), marks=(PART,))
    decodes = job(rank(0), rank(1), marks=(PART,), at="yield self.read(x)")
    deals = job(rank(0), rank(1, "train.py:read:30", *LOADS[2:]), marks=(PART,))

    for each in (alone, deals, decodes):
        assert reads_all(Index(each), each.processes[1:]) is None
    workers = [replace(each, role="loader-worker") for each in (rank(0), rank(1))]
    known = reads_all(Index(job(*workers, marks=(PART,))), workers[:1])
    assert known is not None
    assert known.copies == 2
