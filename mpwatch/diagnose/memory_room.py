"""How much memory the job may still take, and how soon a growth takes it."""

from __future__ import annotations

from typing import NamedTuple

from mpwatch.diagnose.forecast import CRITICAL_WITHIN_S, WARNING_WITHIN_S
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Snapshot


class MemoryRoom(NamedTuple):
    """The nearest limit of memory."""

    free_bytes: int
    total_bytes: int
    what: str
    """`the control group's memory` or `the machine's memory`."""


def memory_room(snapshot: Snapshot) -> MemoryRoom | None:
    """The control group's limit if there is one, else the machine's memory; `None` if unknown."""
    host = snapshot.host
    cgroup = host.cgroup
    if cgroup is not None and cgroup.memory_limit_bytes and cgroup.memory_bytes is not None:
        limit = cgroup.memory_limit_bytes
        if host.memory_total_bytes is None or limit < host.memory_total_bytes:
            free = max(0, limit - cgroup.memory_bytes)
            return MemoryRoom(free, limit, "the control group's memory")
    if host.memory_available_bytes is None or host.memory_total_bytes is None:
        return None
    return MemoryRoom(host.memory_available_bytes, host.memory_total_bytes, "the machine's memory")


def severity_of_growth(room: MemoryRoom | None, per_s: float) -> tuple[Severity, float | None]:
    """How bad a growth is and when it uses up the room; a far end is not foretold."""
    if room is None or per_s <= 0:
        return Severity.INFO, None
    eta_s = room.free_bytes / per_s
    if eta_s <= CRITICAL_WITHIN_S:
        return Severity.CRITICAL, eta_s
    if eta_s <= WARNING_WITHIN_S:
        return Severity.WARNING, eta_s
    return Severity.INFO, eta_s if eta_s <= 24 * 3600 else None
