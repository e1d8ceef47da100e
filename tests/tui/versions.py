"""Differences between the versions of Textual."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from textual.theme import BUILTIN_THEMES

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

ANSI_THEME = "ansi-dark" if "ansi-dark" in BUILTIN_THEMES else "textual-ansi"
"""The theme that keeps the colours of the terminal; Textual 8.2.5 renamed it."""


def is_pinned(package: str) -> bool:
    """Whether a package is installed in the version that `pyproject.toml` pins for the tests."""
    found = re.search(rf'"{package}==([^"]+)"', PYPROJECT.read_text())
    return found is not None and found.group(1) == version(package)
