"""Tensors were sent by a process that ended before they were fetched."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.complaints import evidence_of, heard, said
from mpwatch.diagnose.deaths import TOGETHER_S, death_of
from mpwatch.diagnose.tree import called, family_head
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import History
from mpwatch.model.snapshot import LogEntry, Snapshot

RULE = "producer-exits-before-get"
_SAID = (
    said("FileNotFoundError", kind="ticket-failed"),
    said("ConnectionRefusedError", kind="ticket-failed"),
    said("ConnectionRefusedError", "resource_sharer.py"),
    said("FileNotFoundError", "resource_sharer.py"),
)


def check(snapshot: Snapshot, history: History) -> Iterator[Finding]:
    """Yield a finding for each process that redeemed a void ticket.

    Tickets outstanding when a producer ends are ordinary: a DataLoader's workers leave with what
    they had fetched ahead, and a pin thread may still ask for it while main shuts them down.
    """
    del history
    for entry in heard(snapshot, *_SAID):
        if not _is_shutdown(snapshot, entry):
            yield _void_ticket(snapshot, entry)


def _is_shutdown(snapshot: Snapshot, entry: LogEntry) -> bool:
    """Whether all that was gone by then are loader workers that left as their main told them."""
    gone = [
        (process, process.ended)
        for process in snapshot.processes
        if process.ended is not None
        and process.process != entry.process
        and process.ended.at_s <= entry.at_s + TOGETHER_S
    ]
    return bool(gone) and all(
        process.role == "loader-worker"
        and death_of(ended) == "normal"
        and (head := family_head(snapshot, process)) is not None
        and head.process == entry.process
        for process, ended in gone
    )


def _void_ticket(snapshot: Snapshot, entry: LogEntry) -> Finding:
    """A receiver that found nobody."""
    process = snapshot.get(entry.process)
    who = called(process) if process is not None else "a process of the job"
    address = entry.details.get("address")
    evidence = evidence_of(entry)
    if isinstance(address, str):
        evidence = (*evidence, f"the ticket names the socket {address}")
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=entry.process,
        summary=f"{who} cannot fetch a tensor: the process that sent it is gone",
        evidence=evidence,
        cause=_CAUSE,
        advice=_ADVICE,
    )


_CAUSE = (
    "Under the strategy file_descriptor a queue carries tickets, not tensors: the receiver fetches "
    "the memory from its sender. If that has ended, FileNotFoundError means it ended normally, "
    "ConnectionRefusedError that it crashed. A cleaner that removes pymp-* directories from TMPDIR "
    "looks like the former."
)
_ADVICE = (
    "Keep producers alive until consumers have taken everything: an Event, a Barrier, or join "
    "them last. Small results can be sent as numpy arrays, which travel whole. The strategy "
    "file_system lets tensors outlive their producer, at the price of files that leak on a kill."
)
