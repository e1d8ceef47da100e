"""What the doctor looked at: one limit or right each, with what it means here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

CheckState: TypeAlias = Literal["ok", "note", "warning", "problem"]
"""`note`: worth knowing, harmless. `warning`: will hurt some jobs. `problem`: stops something."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer."""

    name: str
    """What was looked at, short and fixed: `open files`, `/dev/shm`, `ptrace rights`."""
    state: CheckState
    value: str
    """What was found, in numbers: `1024 soft, 524288 hard`."""
    meaning: str
    """What follows from it here, one sentence."""
    fix: str = ""
    """The command or setting that changes it; empty where nothing needs to change."""
