"""A Python that cannot run this copy of mpwatch is told so in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def test_an_extension_module_of_another_python_is_one_sentence(tmp_path: Path) -> None:
    # What a single file made by another minor version has: the package without its `_core`.
    (tmp_path / "msgspec").mkdir()
    (tmp_path / "msgspec" / "__init__.py").write_text("from ._core import Struct\n")
    done = subprocess.run(
        [sys.executable, "-m", "mpwatch", "node", "--stdio"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        check=False,
    )

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    sentence, fix = done.stderr.splitlines()
    assert done.returncode == 2
    assert sentence.startswith("mpwatch: msgspec._core is missing: ")
    assert f"Python {version}" in sentence
    assert fix.startswith("  try: ")


def test_a_python_that_is_too_old_is_one_sentence() -> None:
    told = "import sys; sys.version_info = (3, 9, 18); import mpwatch.cli"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (
        1,
        "mpwatch: Python 3.10 or newer is needed, and this is Python 3.9.\n",
    )


def test_what_only_python_3_10_needs_is_one_sentence(tmp_path: Path) -> None:
    # A single file made by a later version has no tomli, which reads the configuration file.
    (tmp_path / "mpwatch").mkdir()
    (tmp_path / "mpwatch/config.toml").write_text("[values]\nread = true\n")
    (tmp_path / "mpwatch/config.toml").chmod(0o600)
    told = (
        "import sys; sys.version_info = (3, 10, 13, 'final', 0); sys.modules['tomli'] = None; "
        "from mpwatch.cli import main; sys.exit(main(['dump', '1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", told],
        cwd=REPOSITORY,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith("mpwatch: tomli is missing: ")
    assert "Python 3.10" in done.stderr.splitlines()[0]
