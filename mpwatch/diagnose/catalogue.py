"""Every rule there is, by its id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from mpwatch.diagnose.rules import (
    fd_exhaustion_producer,
    fd_exhaustion_receiver,
    max_map_count,
    orphaned_workers,
    shm_full_enospc,
    worker_exited_unexpectedly,
    worker_oom_killed,
    worker_segfault,
)
from mpwatch.model.findings import Finding
from mpwatch.model.history import History
from mpwatch.model.snapshot import Snapshot

Check: TypeAlias = Callable[[Snapshot, History], Iterable[Finding]]


class Rule(NamedTuple):
    """One failure that can be recognised."""

    id: str
    check: Check


RULES: tuple[Rule, ...] = tuple(
    Rule(module.RULE, module.check)
    for module in (
        fd_exhaustion_producer,
        fd_exhaustion_receiver,
        max_map_count,
        orphaned_workers,
        shm_full_enospc,
        worker_exited_unexpectedly,
        worker_oom_killed,
        worker_segfault,
    )
)
