"""Of a process whose job was not looked at nothing is concluded from what was not seen."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.rules.hangs import no_progress, standing_still
from mpwatch.model.findings import Severity
from mpwatch.model.samples import PartOfJob, WaitedOn
from mpwatch.model.snapshot import Snapshot
from tests.builders.snapshots import fds, found, main, only, pid, snapshot_of, thread, uses

PART = PartOfJob(pid(7), "train.py", "rank 2")


def of_part(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, part_of=PART)


def blocked() -> Snapshot:
    """A process that waits for a semaphore which no other process looked at has."""
    (use,) = uses(1, 1)
    wait = WaitedOn("semaphore", "futex", segment=use.segment)
    waits = thread(100, "train.py:73 train_epoch", still_s=40.0, waits=wait)
    return snapshot_of(
        main(threads=[waits], fds=fds(5, links=()), segments=(replace(use, kind="semaphore"),))
    )


def test_a_wait_for_the_rest_of_the_job_is_no_dead_end() -> None:
    whole = blocked()

    (alone,) = wait_graph(Index(whole)).chains
    (part,) = wait_graph(Index(of_part(whole))).chains

    assert alone.verdict == "dead-end"
    assert part.verdict == "unknown"
    assert part.conclusion.startswith("It is outside of what is watched")
    assert found(standing_still.check, whole) != []
    assert found(standing_still.check, of_part(whole)) == []


def test_the_finding_about_a_part_names_the_job_to_look_at() -> None:
    finding = only(no_progress.check, of_part(blocked()))

    assert finding.severity is Severity.INFO
    assert "part of the job of 7 (train.py), which was not looked at" in finding.summary
    assert finding.advice == "Look at the whole job: mpwatch diagnose 7."
    assert "nothing follows from this process alone" in finding.cause
