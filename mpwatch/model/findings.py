"""Findings: a failure that is present or approaching."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from mpwatch.model.ids import ProcessId


class Severity(IntEnum):
    """Severities in order, so that they can be compared with thresholds."""

    INFO = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        """The name used on screens and in JSON."""
        return self.name.lower()


class Finding(Struct, frozen=True):
    """One failure, present or approaching, with its evidence."""

    rule: str
    """Rule id, for example `fd-exhaustion-receiver`."""
    severity: Severity
    summary: str
    evidence: tuple[str, ...]
    """The observed facts, never empty."""
    cause: str
    advice: str
    process: ProcessId | None = None
    """The process it is about; of several alike the first one."""
    others: tuple[ProcessId, ...] = ()
    """Further processes that it is about in the same way."""
    tid: int | None = None
    eta_s: float | None = None
    """Seconds until the failure, where that can be predicted."""
    subject: str = ""
    """Distinguishes findings of one rule about one process (a queue, a segment, a file)."""
    is_doubtful: bool = False
    """Whether it may be innocent: it comes after equally severe findings of what costs time now."""
    costs: float | None = None
    """The share of their time that it costs processes that wait, 0 to 1, where that is known."""
    effect_of: str | None = None
    """Rule id of the finding that causes this one."""
    says_why: bool = False
    """Whether it names its cause itself, so that none is searched for among other findings."""
    first_seen_s: float | None = None
    """Set by the engine: monotonic seconds."""
    resolved_s: float | None = None
    """Set by the engine once the finding no longer holds."""

    @property
    def key(self) -> tuple[str, ProcessId | None, int | None, str]:
        """Identifies the finding across snapshots."""
        return (self.rule, self.process, self.tid, self.subject)

    def overlaps(self, other: Finding) -> bool:
        """Whether both say the same, and of at least one process in common."""
        if (self.rule, self.tid, self.subject) != (other.rule, other.tid, other.subject):
            return False
        return not {self.process, *self.others}.isdisjoint((other.process, *other.others))


class JobFinding(Struct, frozen=True):
    """One failure of a job on several machines, with its evidence; see `Finding`."""

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
    resolved_s: float | None = None
    """Of a recording: since when it no longer holds, seconds since the recording began."""

    @property
    def key(self) -> tuple[str, str | None, int | None, int | None]:
        """Identifies the finding at another moment."""
        return (self.rule, self.node, self.pid, self.rank)
