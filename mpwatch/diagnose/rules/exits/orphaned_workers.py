"""Workers still run after the process that started them has exited."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.distributed.rank_exits import last_place
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import WORK_ROLES, called
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, seconds_text

RULE = "orphaned-workers"
PATIENCE_S = 8.0
"""DataLoader workers check for their parent every 5 s (torch 2.13, MP_STATUS_CHECK_INTERVAL)."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each worker that still runs `PATIENCE_S` after its parent exited."""
    for process in index.snapshot.living():
        if process.role not in WORK_ROLES or process.parent is not None:
            continue
        if process.original_parent is None or process.process == index.snapshot.root:
            continue
        since_s = _orphaned_s(index.snapshot, process)
        if since_s is not None and since_s >= PATIENCE_S and process.sample.state != "Z":
            yield _finding(index.snapshot, process, since_s)


def _orphaned_s(snapshot: Snapshot, process: Process) -> float | None:
    """Seconds since its parent exited, or `None` if the parent still runs or is not known."""
    parent = snapshot.get(process.original_parent)
    if parent is None or parent.ended is None:
        return None
    return snapshot.at_s - parent.ended.at_s


def _finding(snapshot: Snapshot, process: Process, since_s: float) -> Finding:
    """Describe the orphan and the resources it holds."""
    parent = snapshot.get(process.original_parent)
    was = called(parent) if parent is not None else "its parent"
    how = f": {parent.ended.words}" if parent is not None and parent.ended is not None else ""
    evidence = [f"{was} ended {seconds_text(since_s)} ago{how}"]
    evidence.append(f"{called(process)} still runs; its parent is now {process.sample.parent_pid}")
    held = _held(process)
    if held:
        evidence.append(f"it holds {', '.join(held)}")
    stuck = [t.name for t in process.threads if t.waits_on and t.waits_on.kind == "pipe-write"]
    if stuck:
        evidence.append(f"thread {stuck[0]} is blocked writing to a pipe that no process reads")
    where = (
        "in worker_init_fn"
        if process.role == "loader-worker"
        else "at the start of the function that the process runs"
    )
    holds_gpu = bool(process.gpus) or _gpu_fds(process) > 0
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if holds_gpu else Severity.WARNING,
        process=process.process,
        summary=f"{called(process)} has outlived {was} by {seconds_text(since_s)}",
        evidence=tuple(evidence),
        cause=_cause(process, is_stuck=bool(stuck)),
        advice=(
            f"Stop it: kill {process.pid} (SIGTERM first, then SIGKILL). To prevent it, stop "
            "jobs with SIGTERM or by their control group, or call prctl(PR_SET_PDEATHSIG, SIGKILL) "
            f"{where}; that also kills it when the thread that started it exits."
        ),
    )


def _cause(process: Process, *, is_stuck: bool) -> str:
    """Why this process did not end with its parent."""
    cause = (
        "Child processes are not notified when their parent is killed: daemon=True only acts at a "
        "clean exit."
    )
    if process.role == "loader-worker":
        cause += (
            " A DataLoader worker checks for its parent every 5 s, but not during __getitem__"
            + (
                ", and not while it is blocked writing a batch to a pipe whose only remaining read "
                "end is its own."
                if is_stuck
                else "."
            )
        )
    place = last_place(process)
    if place is not None:
        cause += f" This one was last seen in {place}, with the other ranks of the job."
    return cause


def _held(process: Process) -> list[str]:
    """The memory and GPUs that the orphan still holds."""
    held: list[str] = []
    if process.private_bytes:
        held.append(f"{bytes_text(process.private_bytes)} of memory")
    if process.shm_bytes:
        held.append(f"{bytes_text(process.shm_bytes)} of shared memory")
    if process.gpus or _gpu_fds(process):
        held.append("a GPU")
    return held


def _gpu_fds(process: Process) -> int:
    """Descriptors on GPU devices."""
    fds = process.sample.fds
    return 0 if fds is None or fds.by_kind is None else fds.by_kind.get("gpu", 0)
