"""Screens as text files, so that a change of a screen is read in a diff."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare with `golden/NAME.txt`; with MPWATCH_WRITE_GOLDEN set, write it instead."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("MPWATCH_WRITE_GOLDEN"):
        path.write_text(text + "\n")
    assert text == path.read_text().removesuffix("\n")
