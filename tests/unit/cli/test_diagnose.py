"""`mpwatch diagnose FILE` through the command line, with rules that are broken on purpose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.cli import main
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.engine import RULES, Engine, Rule
from mpwatch.model.findings import Finding
from mpwatch.model.samples import Ended
from mpwatch.observe.recording.file import RecordingWriter
from tests.builders.samples import MAIN, job


def broken(index: Index) -> Iterator[Finding]:
    raise KeyError("fds")
    yield


@pytest.fixture
def crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A recording of a job whose main process crashed, read with one broken rule among all."""
    rules = (Rule("broken", broken), *RULES)
    monkeypatch.setattr("mpwatch.observe.recording.timeline.Engine", lambda: Engine(rules))
    path = str(tmp_path / "crash.mpw")
    writer = RecordingWriter(path, MAIN, clock=lambda: 10.0)
    for each in (job(10.0), job(11.0), Ended(MAIN, 11.5, signal=11)):
        writer.write(each)
    writer.close()
    return path


def test_a_rule_that_raises_is_one_finding_and_other_rules_still_run(
    crash: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", crash, "--json"]) == 0

    found = {each["rule"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert set(found) == {"worker-segfault", "rule-failed"}
    assert found["rule-failed"]["severity"] == "info"
    assert found["rule-failed"]["subject"] == "broken"
    assert "KeyError: 'fds'" in found["rule-failed"]["evidence"]


def test_the_finding_about_a_broken_rule_does_not_blame_the_job(
    crash: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["diagnose", crash])

    out, err = capsys.readouterr()
    assert "the rule broken failed and says nothing about this job" in out
    assert "A defect in mpwatch" in out
    assert err == ""


@pytest.mark.parametrize(("threshold", "code"), [("warning", 1), ("critical", 1)])
def test_the_exit_code_depends_on_the_other_rules(crash: str, threshold: str, code: int) -> None:
    assert main(["diagnose", crash, "--fail-on", threshold]) == code


def test_a_broken_rule_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mpwatch.observe.recording.timeline.Engine", lambda: Engine((Rule("broken", broken),))
    )
    path = str(tmp_path / "well.mpw")
    writer = RecordingWriter(path, MAIN, clock=lambda: 10.0)
    writer.write(job(10.0))
    writer.close()

    assert main(["diagnose", path, "--fail-on", "warning"]) == 0
    assert main(["diagnose", path, "--fail-on", "info"]) == 1
