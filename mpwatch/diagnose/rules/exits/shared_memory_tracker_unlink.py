"""A shared_memory block was unlinked while processes still use it."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.describe.findings import capital
from mpwatch.diagnose.analysis.exits.lost_blocks import LostBlock, lost_blocks
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Segment
from mpwatch.model.units import bytes_text

RULE = "shared-memory-tracker-unlink"


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each unlinked block that processes still map.

    Programs also unlink on purpose once all processes have attached, so severity is INFO; a failed
    attach makes it WARNING.
    """
    failed = next(tagged(index.snapshot, RULE), None)
    for segment in index.snapshot.segments:
        if segment.kind != "psm" or segment.is_linked:
            continue
        users = [
            p for p in map(index.snapshot.get, segment.mappers) if p is not None and not p.is_gone
        ]
        if not users:
            continue
        evidence = [
            f"{segment.path}, {bytes_text(segment.size_bytes)}, was unlinked",
            f"still mapped by {all_called(users)}",
        ]
        if failed is not None:
            evidence += evidence_of(failed)
        lost = next((e for e in lost_blocks(index) if e.segment is segment), None)
        if lost is not None:
            raised, at = lost.error.raised, f", at {lost.place}" if lost.place else ""
            file = lost.error.file.rpartition("/")[2]
            evidence.append(f"traceback in {file}: {raised.type}: {raised.text}{at}")
        has_failed = failed is not None or lost is not None
        yield _finding(segment, users, tuple(evidence), lost, has_failed=has_failed)


def _finding(
    segment: Segment,
    users: list[Process],
    evidence: tuple[str, ...],
    lost: LostBlock | None,
    *,
    has_failed: bool,
) -> Finding:
    """Describe the block, the attach that has failed, and which process has ended by that."""
    ended = lost.process if lost is not None else None
    then = effect = ""
    at = f" at {lost.place}" if lost is not None and lost.place else ""
    if ended is not None:
        then = f", so that {called(ended)} could not attach to it{at} and ended"
        effect = (
            f" {capital(called(ended))} came after that: it attaches{at}, found no block of this "
            "name, and ended by that exception. Another one that is started in its place ends the "
            "same way. Those that have the block mapped go on."
        )
    elif lost is not None:
        then = f", and an attach to it has failed{at}"
        effect = (
            f" An attach{at} came after that and found no block of this name. A later one fails "
            "the same way. Those that have the block mapped go on."
        )
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if has_failed else Severity.INFO,
        process=users[0].process,
        others=(ended.process,) if ended is not None else (),
        subject=str(segment.segment),
        summary=f"a shared_memory block used by {all_called(users)} was removed{then}",
        evidence=evidence,
        cause=(
            "The block has no name any more, so a later attach raises FileNotFoundError. Either "
            "the program unlinked it, or a resource tracker did: attaching registers a block with "
            "the tracker of the attaching program, which unlinks the block when that program exits."
            f"{effect}"
        ),
        advice=(
            "Attach with SharedMemory(name, track=False) from Python 3.13 on; before that, "
            "unregister it from the resource tracker after attaching. If the program unlinked it "
            "on purpose after all processes had attached, nothing is wrong."
        ),
    )
