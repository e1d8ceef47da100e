"""One snapshot with its history, and what several rules derive from the two, derived once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from mpwatch.describe.processes import lasting_text
from mpwatch.model.history import History
from mpwatch.model.snapshot import LogEntry, Snapshot

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Index:
    """What every rule reads: one snapshot, its history, and values derived from them.

    The engine builds one for each snapshot. Derived values live as long as it does, so nothing has
    to be invalidated and no rule sees what was derived from another snapshot. Used by one thread.
    """

    __slots__ = ("_derived", "history", "snapshot")

    def __init__(self, snapshot: Snapshot, history: History | None = None) -> None:
        self.snapshot = snapshot
        self.history = History() if history is None else history
        self._derived: dict[tuple[object, ...], Any] = {}

    def entries(self, kind: str) -> Sequence[LogEntry]:
        """The log entries of one kind, oldest first.

        The log is searched once for all rules: after some minutes it has thousands of entries, and
        rules need few of them.
        """
        return _entries_by_kind(self).get(kind, ())

    def lasting(self, seconds: float | None) -> str:
        """For how long something has lasted, in words: see `describe.processes.lasting_text`."""
        return lasting_text(seconds, self.snapshot)

    def drop_derived(self) -> None:
        """Drop what was derived: some of it refers to the index.

        Otherwise all values of a reading wait for the garbage collector: 3,700 objects a second for
        64 workers, which took 6 % of a calm dashboard's cpu, and stopped it for 80 ms each time.
        """
        self._derived.clear()


def derived(function: Callable[Concatenate[Index, _P], _T]) -> Callable[Concatenate[Index, _P], _T]:
    """Decorator of a function of an index: the index keeps what it returns for equal arguments.

    Further arguments are hashable, and the returned value is not changed by any caller.
    """

    @wraps(function)
    def kept(index: Index, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        key = (function, args, *kwargs.items()) if kwargs else (function, args)
        try:
            found: _T = index._derived[key]
        except KeyError:
            found = index._derived[key] = function(index, *args, **kwargs)
        return found

    return kept


@derived
def _entries_by_kind(index: Index) -> Mapping[str, Sequence[LogEntry]]:
    found: defaultdict[str, list[LogEntry]] = defaultdict(list)
    for entry in index.snapshot.log:
        found[entry.kind].append(entry)
    return found
