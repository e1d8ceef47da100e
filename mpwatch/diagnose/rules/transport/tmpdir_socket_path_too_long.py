"""The path of a Unix socket below TMPDIR would be too long."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, called
from mpwatch.diagnose.known_errors import evidence_of, tagged
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot

RULE = "tmpdir-socket-path-too-long"
PATH_LIMIT = 107
"""`sun_path` holds 108 bytes with the terminating zero (unix(7))."""
TAIL = "/pymp-xxxxxxxx/listener-xxxxxxxx"
"""Added by `multiprocessing.util.get_temp_dir` and `arbitrary_address` (CPython 3.10 to 3.14)."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process that failed so, and each root whose TMPDIR is too long."""
    failed = {e.process: e for e in tagged(index.snapshot, RULE)}
    for process in index.snapshot.living():
        if process.process in failed:
            yield _finding(process, Severity.CRITICAL, evidence_of(failed[process.process]))
        elif _is_top(index.snapshot, process) and (length := _path_length(process)) > PATH_LIMIT:
            path = process.sample.environment["TMPDIR"]
            numbers = (f"TMPDIR is {path}", f"sockets below it need {length} of {PATH_LIMIT} bytes")
            yield _finding(process, Severity.WARNING, numbers)


def _is_top(snapshot: Snapshot, process: Process) -> bool:
    """Whether it uses torch and its parent does not have the same problem."""
    if process.role in SERVICE_ROLES or process.sample.torch_loaded is False:
        return False
    if not process.sample.is_python:
        return False
    parent = snapshot.get(process.parent)
    return parent is None or not parent.sample.is_python or _path_length(parent) <= PATH_LIMIT


def _path_length(process: Process) -> int:
    """Bytes of a socket's path below its TMPDIR; 0 where that is not set."""
    folder = process.sample.environment.get("TMPDIR", "").rstrip("/")
    return len((folder + TAIL).encode()) if folder else 0


def _finding(process: Process, severity: Severity, evidence: tuple[str, ...]) -> Finding:
    """Describe the path and what fails."""
    return Finding(
        rule=RULE,
        severity=severity,
        process=process.process,
        summary=f"{called(process)} cannot send tensors: its TMPDIR is too long for a socket",
        evidence=evidence,
        cause=(
            "Tensors are sent through a Unix socket below TMPDIR, and the kernel limits the path "
            "of a socket to 107 bytes. 'AF_UNIX path too long' is usually raised in a "
            "queue's feeder thread, which drops the item: the receiver then waits for ever."
        ),
        advice="Set a short TMPDIR for the job, such as /tmp. It needs no other change.",
    )
