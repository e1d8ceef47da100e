"""The locks between processes that this process holds.

Nothing is replaced: to acquire a lock costs what it costs without the hook. The C object behind a
lock counts how often its process has acquired and not released it, and multiprocessing has a weak
reference to each lock of a process in its table of what to do after a fork (CPython 3.10 to 3.15).
They are read without keeping any lock of the program, see `safe/one_call.py`.
"""

from __future__ import annotations

import itertools
import operator
import sys

from ..safe import foreign_exceptions
from ..safe.one_call import dereference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

LIMIT = 4096
"""Entries of the table beyond which it is not read: that takes 0.1 us for each."""

_semlock = operator.attrgetter("_semlock")
_handle = operator.attrgetter("_semlock.handle")
_count = operator.methodcaller("_count")
_is_zero = operator.methodcaller("_is_zero")


def _locks() -> dict[str, Any] | None:
    """The gauge `locks`; see `wire`."""
    synchronize: Any = sys.modules.get("multiprocessing.synchronize")
    table: Any = getattr(sys.modules.get("multiprocessing.util"), "_afterfork_registry", None)
    entries: dict[Any, Any] = getattr(table, "data", {})
    if synchronize is None or not entries:
        return None
    if len(entries) > LIMIT:
        return {"error": f"more than {LIMIT} locks and queues"}
    # By `id`: comparing classes could run the code of a metaclass.
    kinds = frozenset((id(synchronize.Lock), id(synchronize.RLock)))

    def read(*steps: Callable[[Any], Any]) -> list[Any]:
        """Apply steps to each lock, in one call of functions written in C."""
        objects, again = itertools.tee(map(dereference, entries.values()))
        are_locks = map(kinds.__contains__, map(id, map(type, again)))
        found: Any = itertools.compress(objects, are_locks)
        for step in steps:
            found = map(step, found)
        return list(found)

    try:
        handles = read(_handle)
        counts, zeros = read(_semlock, _count), read(_semlock, _is_zero)
        if handles != read(_handle):
            return {"error": "locks were made or freed meanwhile"}
    except (AttributeError, RuntimeError) as error:
        if not foreign_exceptions.is_ours(error):
            raise
        return {"error": "locks were made or freed meanwhile"}
    # A lock that another process has released is free, whatever this process has counted.
    held = itertools.compress(handles, map(operator.and_, map(bool, counts), zeros))
    return {"known": len(handles), "held": list(held)}


def add_gauge(module: ModuleType, session: Context) -> Undo:
    """Add the gauge `locks`."""
    session.gauges["locks"] = _locks
    return lambda: session.drop_gauges("locks")
