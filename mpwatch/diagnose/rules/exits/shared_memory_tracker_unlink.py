"""A shared_memory block was removed while processes still use it."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import Process, Segment, Snapshot
from mpwatch.model.units import bytes_text

RULE = "shared-memory-tracker-unlink"


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each block without a name that processes still map.

    Unlinking after everybody has attached is also done on purpose, so this alone is information;
    together with a failed attach it is the explanation.
    """
    del history
    failed = next(tagged(snapshot, RULE), None)
    for segment in snapshot.segments:
        if segment.kind != "psm" or segment.is_linked:
            continue
        users = [p for p in map(snapshot.get, segment.mappers) if p is not None and not p.is_gone]
        if not users:
            continue
        evidence = [
            f"{segment.path}, {bytes_text(segment.size_bytes)}, has no name any more",
            f"still mapped by {all_called(users)}",
        ]
        if failed is not None:
            evidence += evidence_of(failed)
        yield _finding(segment, users, tuple(evidence), has_failed=failed is not None)


def _finding(
    segment: Segment, users: list[Process], evidence: tuple[str, ...], *, has_failed: bool
) -> Finding:
    """Put it into words."""
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if has_failed else Severity.INFO,
        process=users[0].process,
        subject=str(segment.segment),
        summary=f"a shared_memory block used by {all_called(users)} was removed",
        evidence=evidence,
        cause=(
            "Attaching registers a block with the attaching program's own resource tracker, which "
            "removes it when that program ends, although others go on using it. Whoever wants to "
            "attach later gets FileNotFoundError."
        ),
        advice=(
            "Attach with SharedMemory(name, track=False) from Python 3.13 on; before that, "
            "unregister it from the resource tracker after attaching. If it was unlinked on "
            "purpose once all had attached, all is well."
        ),
    )
