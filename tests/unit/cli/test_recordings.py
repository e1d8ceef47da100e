from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.cli.recordings import tell_recorded


def test_a_recording_is_told_with_its_length_and_the_command_that_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my job.rec"
    path.write_bytes(b"x" * 2048)

    tell_recorded(str(path), 42.0)

    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"mpwatch: recorded 42 s in {path} (2.0K). To see it: mpwatch replay '{path}'\n"


def test_a_recording_that_was_removed_is_told_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_recorded(str(tmp_path / "\x1b[31mgone.rec"), 5.0)

    told = capsys.readouterr().err
    assert told.endswith("gone.rec cannot be read: No such file or directory.\n")
    assert "\x1b" not in told


def test_a_recording_without_a_reading_is_told_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_recorded(str(tmp_path / "b.rec"), None)

    assert capsys.readouterr().err.endswith("b.rec has no reading of the job.\n")
