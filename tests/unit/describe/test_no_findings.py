"""Where there is no finding, what was seen is said all the same."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from mpwatch.describe.findings import (
    GROWTH_TOLD_S,
    NO_FINDINGS,
    WAIT_TOLD_S,
    no_findings_lines,
    rises,
)
from mpwatch.diagnose.analysis.growth.growing import EVEN_MEMORY
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.stalls.jobs_at_rest import WARNED_S
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.account import Account, Activity
from mpwatch.model.samples import WaitedOn
from mpwatch.model.snapshot import Snapshot, Trends
from mpwatch.report.html import report_html
from mpwatch.report.text import diagnose_text
from tests.builders.accounts import COMPUTES, SLEEPS, with_shares
from tests.builders.snapshots import main, pid, process, snapshot_of, thread
from tests.builders.waits import reads

MIB = 1 << 20


def grows(gained_mib: int) -> Snapshot:
    values = [20 * MIB + gained_mib * MIB * n / 29 for n in range(30)]
    worker = process(201, label="model-0", more={"trends": Trends(private_bytes=values)})
    return snapshot_of(main(), worker)


def waits(verdict_wait: WaitedOn, still_s: float) -> Snapshot:
    at = thread(100, "train.py:7 step", waits=verdict_wait, still_s=still_s)
    job = snapshot_of(main(threads=[at]))
    return replace(job, waits=wait_graph(Index(job)))


def test_a_resource_that_rose_is_told_with_its_gain_and_the_time_that_telling_takes() -> None:
    first, seen = no_findings_lines(grows(35))

    assert first == "No findings. Seen so far:"
    assert seen.startswith("private memory rose: model-0 (201) +35.0M (a growth is a finding after")
    for text in (diagnose_text(grows(35)), report_html(grows(35))):
        assert "no known problems" not in text
        assert "model-0 (201) +35.0M" in text


@pytest.mark.parametrize(("share", "is_told"), [(0.8, True), (0.3, False)])
def test_processes_that_hardly_get_a_core_are_told_with_the_load_of_the_machine(
    share: float, is_told: bool
) -> None:
    worker = process(201, label="model-0", more={"cpu_percent": 20.0})
    job = snapshot_of(main(), worker, usable_cpus=2, load_1m=31.4)
    ready = {COMPUTES: share, SLEEPS: 1 - share}

    lines = no_findings_lines(starved(job, 201, ready))

    told = "of the last minute these waited for a free core: model-0 (201) 7"
    assert any(told in line for line in lines) is is_told
    calm = replace(job, host=replace(job.host, load_1m=1.5))
    assert not any(told in line for line in no_findings_lines(starved(calm, 201, ready)))
    if is_told:
        assert "(2 cores, a load of 31; the job itself uses 0.2 cores)" in lines[1]


def starved(job: Snapshot, number: int, found: Mapping[Activity, float]) -> Snapshot:
    """The job with a minute of readings of one process, which never had a core."""
    job = with_shares(job, **{f"p{number}": found})
    whole = job.account.processes[pid(number)]
    (only,) = whole.uncounted
    buckets = tuple(each._replace(tally=each.tally._replace(cpu_s=0.0)) for each in only.buckets)
    whole = replace(whole, uncounted=(only._replace(buckets=buckets),))
    return replace(job, account=replace(job.account, processes={pid(number): whole}))


def test_a_rise_is_told_after_three_readings_and_calls_no_watch_longer() -> None:
    worker = process(201, more={"trends": Trends(private_bytes=[20 * MIB, 30 * MIB, 40 * MIB])})
    job = snapshot_of(main(), worker)

    assert "+20.0M" in no_findings_lines(job)[1]
    assert list(rises(job)) == []


def test_a_wait_that_lasts_is_told() -> None:
    waiting = waits(reads(500, timeout_s=None), 16.0)
    watched = Account(waiting.root, waiting.at_s - 16.0, waiting.at_s, readings=16)

    (_, seen) = no_findings_lines(replace(waiting, account=watched))

    assert seen.startswith("main waits for")
    assert "for at least 16 s" in seen


@pytest.mark.parametrize(
    "healthy",
    [
        grows(1),
        waits(reads(500, timeout_s=None), 1.0),
        waits(WaitedOn("timer", "clock_nanosleep", timeout_s=60.0), 50.0),
    ],
    ids=["hardly grows", "waits for a moment", "sleeps"],
)
def test_otherwise_there_are_no_known_problems(healthy: Snapshot) -> None:
    assert no_findings_lines(healthy, is_timed=False) == (NO_FINDINGS,)


def test_the_times_are_those_of_the_rules() -> None:
    assert WAIT_TOLD_S == WARNED_S
    assert EVEN_MEMORY.span_s <= GROWTH_TOLD_S
