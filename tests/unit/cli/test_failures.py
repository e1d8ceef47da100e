"""Errors of commands: one sentence, and a command that helps."""

from __future__ import annotations

import argparse
import ast
import os
import shlex
from pathlib import Path

import pytest

import mpwatch.cli
from mpwatch.cli import inspect
from mpwatch.cli.failures import EXIT_USAGE, Failure, check_recordable, describe, reading, writing

SOURCES = sorted(Path(mpwatch.cli.__file__).parent.glob("*.py"))


def test_no_failure_has_an_empty_fix() -> None:
    calls = [
        node
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Failure"
    ]
    bare = [
        ast.unparse(call)
        for call in calls
        if len(call.args) < 2 or ast.unparse(call.args[1]) in ("''", '""')
    ]

    assert len(calls) > 20
    assert bare == []


PLAIN = {"arguments.pid", "command", "os.geteuid()", "pids[0]", "scenario.name"}
"""Numbers, and names that mpwatch has given itself."""


def unquoted(node: ast.expr) -> list[str]:
    """What is put into a command as it is."""
    if not isinstance(node, ast.JoinedStr):
        return []
    values = [each.value for each in node.values if isinstance(each, ast.FormattedValue)]
    return [
        ast.unparse(value)
        for value in values
        if ast.unparse(value) not in PLAIN and not ast.unparse(value).startswith("shlex.quote(")
    ]


def test_what_others_have_named_is_quoted_in_every_command() -> None:
    found = [
        (source.name, each)
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Failure"
        for argument in node.args[1:2]
        for each in unquoted(argument)
    ]

    assert found == []


def test_a_command_for_a_path_with_spaces_and_quotes_names_that_path(tmp_path: Path) -> None:
    folder = tmp_path / "my job's $HOME"
    folder.mkdir()
    (folder / "a.mpw").touch()

    with pytest.raises(Failure) as exists:
        check_recordable(str(folder / "a.mpw"))
    with pytest.raises(Failure) as is_missing:
        check_recordable(str(folder / "sub dir" / "a.mpw"))
    with pytest.raises(Failure) as unreadable, reading(str(folder)):
        raise PermissionError

    assert shlex.split(exists.value.fix)[1:] == [f"{folder}/a.mpw", f"{folder}/a.mpw.old"]
    assert shlex.split(is_missing.value.fix) == ["mkdir", "-p", f"{folder}/sub dir"]
    assert shlex.split(unreadable.value.fix)[-1] == str(folder)


def test_a_failure_is_printed_with_the_command_that_helps() -> None:
    failure = Failure("Process 42 does not exist.", "mpwatch ps")

    assert describe(failure) == "mpwatch: Process 42 does not exist.\n  try: mpwatch ps"


@pytest.mark.parametrize(
    ("text", "words"), [(None, "cannot be read: No such file"), ("text\n", "is not a recording")]
)
def test_a_file_that_cannot_be_replayed_is_reported_also_without_a_terminal(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.mpw"
    if text is not None:
        path.write_text(text)

    assert mpwatch.cli.main(["replay", str(path)]) != 0
    assert words in capsys.readouterr().err


def test_no_memory_for_mpwatch_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ps(_: argparse.Namespace) -> int:
        raise MemoryError

    monkeypatch.setattr(inspect, "ps", ps)

    assert mpwatch.cli.main(["ps"]) == EXIT_USAGE
    assert capsys.readouterr().err.splitlines() == [
        "mpwatch: There is not enough memory for mpwatch itself.",
        "  try: ulimit -v unlimited",
    ]


def test_a_recording_is_not_overwritten(tmp_path: Path) -> None:
    existing = tmp_path / "job.mpw"
    existing.touch()

    with pytest.raises(Failure, match="exists already") as caught:
        check_recordable(str(existing))
    assert caught.value.fix == f"mv {existing} {existing}.old"
    with pytest.raises(Failure, match="There is no folder") as caught:
        check_recordable(str(tmp_path / "none" / "job.mpw"))
    assert caught.value.fix == f"mkdir -p {tmp_path / 'none'}"


def test_files_that_cannot_be_read_or_written_are_one_sentence(tmp_path: Path) -> None:
    path = str(tmp_path / "none" / "job.mpw")

    with pytest.raises(Failure, match=f"^{path} cannot be read: .*[.]$"), reading(path):
        os.stat(path)
    with pytest.raises(Failure, match=f"^{path} cannot be written: .*[.]$"), writing(path):
        pass
