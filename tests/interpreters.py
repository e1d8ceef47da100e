"""Interpreters of other Python versions, where pyenv installs them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

MUSL = os.environ.get("MPWATCH_MUSL_PYTHON", "")
"""A Python 3.10 or later that is linked with musl, as on Alpine. On Debian one is built from its
source by `CC=musl-gcc ./configure`, with a `-print-multiarch` that says `x86_64-linux-musl`."""
VERSIONS = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))) / "versions"


def installed(pattern: str = "3.1[0-9].*/bin/python") -> list[Path]:
    """Paths below pyenv's versions, sorted; none where this user cannot read the directory."""
    try:
        return sorted(path for path in VERSIONS.glob(pattern) if os.access(path, os.X_OK))
    except PermissionError:
        return []


def other_versions() -> list[str]:
    """The interpreters of Python 3.10 and later whose minor version is not the running one."""
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    found = installed("3.1[0-9]*/bin/python3.[0-9][0-9]")
    return [str(path) for path in found if path.name != own]


def version_of(python: object) -> str:
    """The version in an interpreter's path; pytest also asks where there are none."""
    return python.parts[-3] if isinstance(python, Path) else "none"


def name_of(parameter: object) -> str | None:
    """The version of an interpreter, for the name of a test; pytest names other parameters."""
    return version_of(parameter) if isinstance(parameter, Path) else None
