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
    assert err == f"mpwatch: {path} has 42 s, 2.0K: mpwatch replay '{path}'\n"


def test_a_recording_without_a_reading_is_told_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell_recorded(str(tmp_path / "b.rec"), None)

    assert capsys.readouterr().err.endswith("b.rec has no reading of the job.\n")
