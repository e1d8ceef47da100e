"""Idle compile workers hold memory in every rank."""

from __future__ import annotations

from collections.abc import Iterator

from mpwatch.diagnose.analysis.growth.forecast import memory_headroom
from mpwatch.diagnose.analysis.idle_time import is_stalled
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, family_head, of_role
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process
from mpwatch.model.units import bytes_text

RULE = "compile-worker-pool"
MANY = 3
IDLE_S = 8.0
OF_MEMORY = 0.05


def check(index: Index) -> Iterator[Finding]:
    """Yield one finding for `MANY` or more idle compile workers."""
    workers = list(of_role(index.snapshot, "compile-worker"))
    if len(workers) < MANY or not all(is_stalled(w, index, IDLE_S) for w in workers):
        return
    found = {owner.process: owner for worker in workers if (owner := _owner(index, worker))}
    owners = tuple(found.values())
    of = f" of {all_called(owners)}" if owners else ""
    held = sum(worker.private_bytes or 0 for worker in workers)
    headroom = memory_headroom(index.snapshot)
    is_much = headroom is not None and held >= OF_MEMORY * headroom.total_bytes
    yield Finding(
        rule=RULE,
        severity=Severity.WARNING if is_much else Severity.INFO,
        process=owners[0].process if owners else None,
        others=tuple(each.process for each in owners[1:]),
        summary=f"{len(workers)} idle compile workers{of} hold {bytes_text(held)}",
        evidence=(
            f"{len(workers)} processes of torch.compile, none has used cpu for {IDLE_S:.0f} s",
            f"{bytes_text(held)} of private memory together",
        ),
        cause=(
            "torch.compile starts a pool of up to 32 compile workers for each rank and keeps it "
            "after compilation has finished."
        ),
        advice=(
            "Set TORCHINDUCTOR_COMPILE_THREADS=1 to compile in the rank itself (the first steps "
            "take longer). Newer versions of torch shrink the idle pool."
        ),
    )


def _owner(index: Index, worker: Process) -> Process | None:
    """The process that compiles: the pool has a process of its own between it and the workers."""
    head = family_head(index, worker)
    while head is not None and head.role == "compile-worker":
        head = family_head(index, head)
    return head
