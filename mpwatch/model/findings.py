"""What is wrong, where, why, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from mpwatch.model.ids import ProcessId


class Severity(IntEnum):
    """How bad it is; ordered, so that thresholds can be compared."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        """The name used on screens and in JSON."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One failure, present or approaching, with the numbers that show it."""

    rule: str
    """Id in the catalogue of failures, e.g. `fd-exhaustion-receiver`."""
    severity: Severity
    summary: str
    evidence: tuple[str, ...]
    """The numbers seen. No evidence, no finding."""
    cause: str
    advice: str
    process: ProcessId | None = None
    tid: int | None = None
    eta_s: float | None = None
    """Seconds until the damage, where that can be forecast."""
    subject: str = ""
    """Tells apart findings of one rule about one process (a queue, a segment, a file)."""
    effect_of: str | None = None
    """Rule id of the finding that causes this one; it is then shown below that one."""
    first_seen_s: float | None = None
    """Set by the engine: monotonic seconds."""
    resolved_s: float | None = None
    """Set by the engine once the finding no longer holds."""

    @property
    def key(self) -> tuple[str, ProcessId | None, int | None, str]:
        """What makes it the same finding at the next look."""
        return (self.rule, self.process, self.tid, self.subject)
