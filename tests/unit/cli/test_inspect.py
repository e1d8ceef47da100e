"""`mpwatch diagnose` with a recording, and with files that torch's flight recorder has left."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    assert "the rule broken failed before it had checked all of this job" in out
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


DATA = Path(__file__).parents[2] / "data" / "flight-recorder"


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """The files of three gloo ranks, written ten minutes after the last call."""
    folder = tmp_path / "dumps"
    shutil.copytree(DATA / "absent", folder)
    for path in folder.iterdir():
        os.utime(path, (1_795_456_631.27 + 600, 1_795_456_631.27 + 600))
    return folder


def test_a_folder_of_dumps_is_explained(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(dumps)]) == 0

    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("flight recorder of ranks 0-2; newest file of 2026-11-23 18:07:11 UTC")
    assert "2 ranks wait in all_reduce for rank 2" in out
    assert "called at dump.py:18 stuck 10 min before its file was written" in " ".join(out.split())
    rows = out.partition("RANKS")[2].splitlines()
    assert [row.split()[:3] for row in rows[2:5]] == [
        ["0", "5", "1"],
        ["1", "5", "1"],
        ["2", "3", "0"],
    ]


def test_the_same_as_json_and_the_exit_code(
    dumps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(path) for path in sorted(dumps.iterdir())]

    assert main(["diagnose", *paths, "--json", "--fail-on", "critical"]) == 1

    document = json.loads(capsys.readouterr().out)
    (finding,) = document["findings"]
    assert finding["rule"] == "rank-stuck-in-collective"
    assert finding["severity"] == "critical"
    assert finding["subject"] == "rank 2"
    assert document["root"] is None
    assert document["schema"] == 1
    (group,) = [each for each in document["ranks"][0]["groups"] if each["name"] == "0"]
    assert group["called"] == 4
    assert [call["operation"] for call in group["unfinished"]] == ["all_reduce"]


def test_one_file_alone_says_that_the_others_are_needed(
    dumps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(dumps / "nccl_trace_rank_0")]) == 0

    assert "Give the files of the other ranks as well." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["empty"], "No file of torch's flight recorder was found there."),
        (["missing_0", "missing_1"], "missing_0 cannot be read: No such file or directory."),
        (["trace_0"], "is no dump of torch's flight recorder: it holds something other than"),
        (["missing"], "missing cannot be read: No such file or directory."),
        (["pipe_0", "trace_0"], "pipe_0 is not a regular file."),
    ],
)
def test_errors_are_one_sentence(
    names: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "trace_0").write_bytes(b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00true\x85R.")
    os.mkfifo(tmp_path / "pipe_0")

    assert main(["diagnose", *(str(tmp_path / name) for name in names)]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err


def test_several_processes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "4242", "4243"]) == 2

    assert "takes one PID, or several files" in capsys.readouterr().err


@pytest.mark.slow
def test_files_with_any_values_are_explained_or_refused(tmp_path: Path) -> None:
    chance = random.Random(11)
    text = (DATA / "operation" / "nccl_trace_rank_0.json").read_text()
    odd: list[object] = [
        None,
        -1,
        10**400,
        0.5,
        "\x1b[2J",
        "x" * 5000,
        [],
        {},
        [[]],
        {"a": []},
        True,
    ]

    def changed(value: Any, depth: int = 0) -> Any:
        if depth and chance.random() < 0.04:
            return chance.choice(odd)
        if isinstance(value, dict):
            return {key: changed(each, depth + 1) for key, each in value.items()}
        return [changed(each, depth + 1) for each in value] if isinstance(value, list) else value

    for _ in range(60):
        for rank in (0, 1, 9_999_999):
            document = json.dumps(changed(json.loads(text)))
            (tmp_path / f"trace_{rank}.json").write_text(document)
        for more in ([], ["--json"]):
            assert main(["diagnose", str(tmp_path), *more]) in (0, 2)
