"""The order in which the processes of a job are shown: families together."""

from __future__ import annotations

from collections.abc import Mapping

from mpwatch.model.ids import ProcessId
from mpwatch.observe.state.process_builder import Member


class FamilyOrder:
    """Sorts members once, and again only after somebody came, went, or lost a parent."""

    def __init__(self) -> None:
        self._basis: list[tuple[ProcessId, ProcessId | None]] = []
        self._root: ProcessId | None = None
        self._order: tuple[tuple[ProcessId, int], ...] = ()

    def of(
        self, members: Mapping[ProcessId, Member], root: ProcessId
    ) -> tuple[tuple[ProcessId, int], ...]:
        """Each with its depth: root first, children after parents by birth, orphans last."""
        basis = [(process, member.parent) for process, member in members.items()]
        if basis != self._basis or root != self._root:
            self._basis, self._root = basis, root
            self._order = tuple(_in_families(dict(basis), root))
        return self._order


def _in_families(
    parents: Mapping[ProcessId, ProcessId | None], root: ProcessId
) -> list[tuple[ProcessId, int]]:
    children: dict[ProcessId | None, list[ProcessId]] = {}
    for process, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(process)
    for siblings in children.values():
        siblings.sort(key=lambda each: (each != root, each.start_ticks, each.pid), reverse=True)
    pending = [(process, 0) for process in children.get(None, ())]
    ordered = []
    while pending:
        process, depth = pending.pop()
        ordered.append((process, depth))
        pending.extend((child, depth + 1) for child in children.get(process, ()))
    return ordered
