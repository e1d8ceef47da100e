"""A new process needs more descriptors than the fork server accepts."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.resources import burden_words
from mpwatch.diagnose.known_errors import evidence_of, number_of, reported, tagged
from mpwatch.model.findings import Finding, Severity

RULE = "forkserver-too-many-fds"
MOST_FDS = 251
NEAR_FDS = 200
"""With one tensor for each layer or sample, a count that grows with the data soon exceeds 251."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for a reported failure, else for a start that came near the limit."""
    refused = next(tagged(index.snapshot, RULE), None)
    if refused is None:
        yield from _near(index)
        return
    maker = index.snapshot.get(refused.process)
    for finding in reported(
        index.snapshot,
        RULE,
        summary=(
            "cannot start a process: its arguments hold more tensors than the fork server accepts"
        ),
        cause=_CAUSE,
        advice=_ADVICE,
    ):
        where = () if maker is None else tuple(burden_words(index, maker))
        yield replace(finding, evidence=(*finding.evidence, *where))


def _near(index: Index) -> Iterator[Finding]:
    """The finding for a start that was accepted with nearly the highest number of descriptors."""
    for entry in index.entries("start"):
        if entry.details.get("method") != "forkserver":
            continue
        count = number_of(entry.details, "fds")
        process = index.snapshot.get(entry.process)
        if process is None or count is None or count < NEAR_FDS:
            continue
        yield Finding(
            rule=RULE,
            severity=Severity.WARNING,
            process=process.process,
            summary=(
                f"{called(process)} passes {count:.0f} descriptors to a new process; the fork "
                f"server accepts {MOST_FDS}"
            ),
            evidence=(*evidence_of(entry), *burden_words(index, process)),
            cause=_CAUSE,
            advice=_ADVICE,
        )
        return


_CAUSE = (
    "The fork server receives all descriptors of a new process in one message and accepts at most "
    "251; each tensor storage among the arguments is one. The limit is fixed in CPython; ulimit "
    "does not change it."
)
_ADVICE = (
    "Pack the tensors into few (one tensor and offsets), or use "
    'mp.get_context("spawn"), which starts more slowly. The strategy file_system also works, but '
    "leaks files when the job is killed."
)
