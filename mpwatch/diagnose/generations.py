"""DataLoader workers in the sets they were started in."""

from __future__ import annotations

from collections.abc import Iterable

from mpwatch.model.snapshot import Process

GAP_TICKS = 200
"""Two seconds: workers of one set are started back to back, also by spawn."""


def generations(workers: Iterable[Process]) -> list[tuple[Process, ...]]:
    """Workers grouped by birth, the oldest set first; `start_ticks` are 1/100 s."""
    groups: list[list[Process]] = []
    for worker in sorted(workers, key=lambda each: each.process.start_ticks):
        last = groups[-1][-1] if groups else None
        if last is None or worker.process.start_ticks - last.process.start_ticks > GAP_TICKS:
            groups.append([worker])
        else:
            groups[-1].append(worker)
    return [tuple(group) for group in groups]
