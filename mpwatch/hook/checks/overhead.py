"""The cost of one wrapped and recorded call in this process, measured once on the hook's thread.

The wrappers run in the program's own threads, where a measurement would cost as much again. So
their cost is estimated as the number of records times this figure. The estimate is too low: a
wrapper of a tensor's sharing does more than one of a queue, short calls of a queue are wrapped and
not recorded, and caches are warm here: where processes wake each other for every item, all Python
code takes five times as long.
"""

from __future__ import annotations

from .. import wire
from ..transport.ring import Ring, make_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..safe.unpatched import System

_CALLS = 40
"""About 20 us for each round, the longest that the program waits for the GIL."""
_ROUNDS = 3


def wrapper_ns(system: System) -> int:
    """Cpu time that a wrapper of a queue adds to a call, in ns: the least of several rounds.

    It records into a ring of its own that is freed afterwards.
    """
    scratch = Ring(system, slots=16)
    record, _ = make_record(scratch, system)

    def bare(*_: Any, **__: Any) -> None:
        return None

    wrapped = _wrapped(bare, record, system.monotonic_ns)
    rounds = [(_taken(system, bare), _taken(system, wrapped)) for _ in range(_ROUNDS)]
    scratch.close()
    return max(1, min(row[1] for row in rounds) - min(row[0] for row in rounds))


def _wrapped(
    original: Callable[..., Any], record: Callable[..., None], now: Callable[[], int]
) -> Callable[..., Any]:
    """The work that all wrappers have in common."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns, key = now(), id(self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            raise
        record(wire.QUEUE_GET, began_ns, 0, 0, key)
        return result

    return call


def _taken(system: System, call: Callable[..., Any]) -> int:
    """Cpu time of one call, the loop included."""
    thing = object()
    began_ns = system.thread_time_ns()
    for _ in range(_CALLS):
        call(thing)
    return (system.thread_time_ns() - began_ns) // _CALLS
