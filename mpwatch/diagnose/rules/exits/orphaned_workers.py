"""Workers still run after the process that started them has exited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.diagnose.analysis.distributed.rank_exits import last_place
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    WORK_ROLES,
    all_called,
    called,
    orphaned_before,
)
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, seconds_text

RULE = "orphaned-workers"
PATIENCE_S = 8.0
"""DataLoader workers check for their parent every 5 s (torch 2.13, MP_STATUS_CHECK_INTERVAL)."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each worker that still runs `PATIENCE_S` after its parent exited.

    One for all whose parent was gone before they were first read.
    """
    if left := _still_left(index):
        yield _of_those_left(index, left)
    for process in index.snapshot.living():
        if process.role not in WORK_ROLES or process.parent is not None:
            continue
        if process.original_parent is None or process.process == index.snapshot.root:
            continue
        since_s = _orphaned_s(index.snapshot, process)
        if since_s is not None and since_s >= PATIENCE_S and process.sample.state != "Z":
            yield _finding(index.snapshot, process, since_s)


def _still_left(index: Index) -> list[Process]:
    """The processes whose parent had exited before, without workers that may yet notice."""
    started_s = index.history.started_at_s
    watched_s = 0.0 if started_s is None else index.snapshot.at_s - started_s
    left = orphaned_before(index)
    if watched_s < PATIENCE_S:
        left = [each for each in left if each.role != "loader-worker"]
    return left


def _of_those_left(index: Index, left: Sequence[Process]) -> Finding:
    """Describe what is left of a job whose parent process is gone."""
    ids = {process.process for process in left}
    ends = [
        chain
        for chain in wait_graph(index).chains
        if chain.verdict == "dead-end" and chain.links[0].process in ids
    ]
    one = len(left) == 1
    held = [f"{called(each)} holds {', '.join(_held(each))}" for each in left if _held(each)]
    now = ", ".join(sorted({f"{each.sample.parent_pid}" for each in left}))
    never = (
        f" {'It waits' if one else 'They wait'} for what it would have sent, which never comes."
        if ends
        else ""
    )
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if ends or any(map(_is_on_gpu, left)) else Severity.WARNING,
        process=left[0].process,
        others=tuple(each.process for each in left[1:]),
        subject="before",
        summary=(
            f"the process that started {all_called(left)} has exited; "
            f"{'it still runs' if one else 'they still run'}"
        ),
        evidence=(
            f"{all_called(left)} {'was' if one else 'were'} started by multiprocessing, whose "
            f"processes begin as children of the program; the parent now is {now}",
            "the program had exited before mpwatch first looked",
            *(chain.sentence for chain in ends[:SHOWN]),
            *held[:SHOWN],
        ),
        cause=(
            "Child processes are not notified when their parent exits: daemon=True only acts at a "
            f"clean exit, and a program without a handler of SIGTERM has none.{never}"
        ),
        advice=(
            f"Find out what ended the program: its output, the scheduler's log, dmesg. Stop what "
            f"is left: kill {' '.join(str(each.pid) for each in left[:SHOWN_PIDS])} (SIGTERM "
            "first, then SIGKILL). To prevent it, turn SIGTERM into an exception in the program "
            "(signal.signal(SIGTERM, lambda *_: sys.exit(1))), or call "
            "prctl(PR_SET_PDEATHSIG, SIGKILL) in each child, which also kills it when the thread "
            "that started it exits."
        ),
    )


SHOWN = 3
SHOWN_PIDS = 8


def _orphaned_s(snapshot: Snapshot, process: Process) -> float | None:
    """Seconds since its parent exited, or `None` if the parent still runs or is not known."""
    parent = snapshot.get(process.original_parent)
    if parent is None or parent.ended is None or _is_daemon(snapshot, process, parent):
        return None
    return snapshot.at_s - parent.ended.at_s


def _is_daemon(snapshot: Snapshot, process: Process, parent: Process) -> bool:
    """Whether it left on purpose: a child made a session of its own, forked once more and ended.

    A session that a launcher gives to its ranks is none: it does not end before them.
    """
    root, ended = snapshot.get(snapshot.root), parent.ended
    sessions = {process.sample.session, root.sample.session if root is not None else None}
    is_apart = None not in sessions and len(sessions) == 2
    is_helper = parent.role == "other" and ended is not None and ended.exit_code == 0
    return is_apart and is_helper


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
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if _is_on_gpu(process) else Severity.WARNING,
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
    if _is_on_gpu(process):
        held.append("a GPU")
    return held


def _is_on_gpu(process: Process) -> bool:
    """Whether it keeps a GPU in use."""
    return bool(process.gpus) or _gpu_fds(process) > 0


def _gpu_fds(process: Process) -> int:
    """Descriptors on GPU devices."""
    fds = process.sample.fds
    return 0 if fds is None or fds.by_kind is None else fds.by_kind.get("gpu", 0)
