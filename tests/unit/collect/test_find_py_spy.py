"""Where py-spy is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.collect.process import py_spy


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages that mpwatch is in, with no py-spy beside Python or on PATH."""
    packages = tmp_path / "site-packages"
    module = packages / "mpwatch" / "collect" / "process" / "py_spy.py"
    monkeypatch.setattr(py_spy, "__file__", str(module))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return packages


def test_py_spy_is_found_beside_mpwatch_as_in_a_single_file(installed: Path) -> None:
    program = installed / "bin" / "py-spy"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    assert py_spy.find_py_spy() == str(program)


def test_without_py_spy_there_is_none(installed: Path) -> None:
    assert py_spy.find_py_spy() is None
