"""`mpwatch clean`: what it says of files that it removes, and of those that it cannot."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from mpwatch.cli.failures import Failure
from mpwatch.cli.maintain import clean
from mpwatch.collect.host import orphans
from mpwatch.collect.host.orphans import Leftover, Leftovers


def test_only_the_size_of_removed_files_is_said_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torch_1_2").write_bytes(b"x" * 2048)
    (tmp_path / "torch_3_4").mkdir()  # unlink(2) refuses it
    files = tuple(
        Leftover("segment", str(path), 7, size, 60.0)
        for path, size in ((tmp_path / "torch_1_2", 2048), (tmp_path / "torch_3_4", 1 << 20))
    )
    monkeypatch.setattr(orphans, "find_leftovers", lambda: Leftovers(files))

    assert clean(argparse.Namespace(yes=False)) == 0
    assert "Files: 2, 1.0M." in capsys.readouterr().out

    with pytest.raises(Failure, match=r"Not all files could be removed; the first: .*torch_3_4"):
        clean(argparse.Namespace(yes=True))
    assert "Files removed: 1 of 2, 2.0K." in capsys.readouterr().out
    assert not (tmp_path / "torch_1_2").exists()
