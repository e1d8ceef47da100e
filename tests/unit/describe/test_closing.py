"""What is told of a job once its dashboard is closed."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.describe.closing import closing_lines
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Hook, Snapshot
from tests.builders.report_job import finding
from tests.builders.snapshots import exited, main, process, snapshot_of


def told(snapshot: Snapshot, recording: str | None = None) -> list[str]:
    return [f"{each.label} {each.text}".strip() for each in closing_lines(snapshot, recording)]


def test_a_running_job_with_a_finding_tells_it_with_its_fix_and_the_command_for_more() -> None:
    found = replace(finding(), severity=Severity.CRITICAL, summary="both wait", advice="do not")

    lines = told(snapshot_of(main(), findings=(found,)))

    assert lines[0] == "train.py (100) was watched; it still runs."
    assert lines[1:3] == ["CRITICAL both wait", "fix do not"]
    assert lines[-1] == "more mpwatch diagnose 100, mpwatch dump 100"


def test_a_healthy_job_says_so() -> None:
    assert any(line.startswith("No findings") for line in told(snapshot_of(main())))


def test_many_findings_are_counted() -> None:
    many = [replace(finding(), rule=f"rule-{n}", summary=f"wrong {n}") for n in range(9)]

    lines = told(snapshot_of(main(), findings=tuple(many)))

    assert "and 5 more findings" in lines


def test_an_ended_job_tells_how_its_processes_ended_and_where_the_rest_is() -> None:
    dead = main(ended=exited(100, signal=9), hook=Hook("gone", events=12))
    killed = process(201, ended=exited(201, signal=9))
    plain = process(202, ended=exited(202, exit_code=0))

    lines = told(snapshot_of(dead, killed, plain))

    assert lines[0] == "train.py (100) was watched; it has ended: signal 9 (SIGKILL)."
    assert any("(201): signal 9 (SIGKILL), 5.0 s before the end of this watch" in x for x in lines)
    assert "ended 1 other process with exit code 0" in lines
    assert "more mpwatch autopsy 100 (the last events of its hooks)" in lines
    assert not any("diagnose" in line for line in lines)


def test_a_recording_is_named_with_the_commands_that_read_it() -> None:
    ended = snapshot_of(main(ended=exited(100, exit_code=1)))

    lines = told(ended, "/tmp/a b.rec")

    assert (
        lines[-1] == "more mpwatch replay '/tmp/a b.rec', mpwatch report '/tmp/a b.rec' -o OUT.html"
    )
