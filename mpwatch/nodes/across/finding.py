"""A finding of a job as a whole, and words that such findings share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mpwatch.model.findings import Severity

NAMES_SHOWN = 6
EVIDENCE_SHOWN = 8


@dataclass(frozen=True, slots=True)
class JobFinding:
    """One failure of a job, with its evidence; see `mpwatch.model.findings.Finding`."""

    rule: str
    severity: Severity
    summary: str
    evidence: tuple[str, ...]
    cause: str
    advice: str
    node: str | None = None
    """The node of the process that causes it, or the node itself."""
    pid: int | None = None
    rank: int | None = None


def names_text(names: Iterable[str]) -> str:
    """`node-1, node-2 and 3 more`."""
    found = list(names)
    more = len(found) - NAMES_SHOWN
    return ", ".join(found[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
