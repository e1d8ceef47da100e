"""How full the queues of a process are, read from their semaphores on request."""

from __future__ import annotations

import collections
import weakref

from ..safe import foreign_exceptions
from ..safe.exact import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 128
"""Queues that are remembered."""
UNBOUNDED = 1 << 30
"""A queue without a limit has a larger `maxsize` than this (SEM_VALUE_MAX is 2^31 - 1)."""


class _Reference(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("key",)
    key: int


class QueueDepths:
    """The queues that this process has used and that still exist.

    Only the semaphores are kept: a queue that another thread held could be freed there.
    """

    __slots__ = ("_dead", "known")

    def __init__(self) -> None:
        self.known: dict[int, tuple[_Reference, Any, Any, int]] = {}
        """Reference, semaphore of free places, semaphore of readers, `maxsize`; by `id`."""
        self._dead: collections.deque[_Reference] = collections.deque()

    def add(self, queue: Any) -> None:
        """Remember a queue; never raises."""
        if len(self.known) >= LIMIT:
            self._forget_freed()
            if len(self.known) >= LIMIT:
                return
        try:
            # The callback is in C: a signal handler could raise in one written in Python.
            reference = _Reference(queue, self._dead.append)
            reference.key = id(queue)
            known = attributes(queue)
            places = attributes(known.get("_sem")).get("_semlock")
            readers = attributes(known.get("_rlock")).get("_semlock")
            maxsize = known.get("_maxsize", UNBOUNDED)
            self.known[reference.key] = reference, places, readers, maxsize
        except Exception as error:
            if not foreign_exceptions.is_ours(error):
                raise

    def show(self) -> list[dict[str, Any]] | None:
        """The gauge `queues`; see `wire`."""
        self._forget_freed()
        rows = []
        for key, (_, places, readers, maxsize) in tuple(self.known.items()):
            rows.append(
                {
                    "key": key,
                    "maxsize": maxsize if maxsize < UNBOUNDED else None,
                    "depth": None if places is None else maxsize - places._get_value(),
                    "is_being_read": None if readers is None else readers._is_zero(),
                }
            )
        rows.sort(key=lambda row: -(row["depth"] or 0))
        return rows or None

    def _forget_freed(self) -> None:
        """Forget queues that were freed; a new queue may have the same address."""
        while self._dead:
            reference = self._dead.popleft()
            row = self.known.get(reference.key)
            if row is not None and row[0] is reference:
                del self.known[reference.key]
