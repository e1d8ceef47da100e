"""The queues of the standard library, which torch uses too.

In a fast exchange of items every bytecode here counts: processes that wake each other find nothing
in the caches, and a bytecode takes 50 ns instead of 5. So a short call is
recorded only if the last record of its kind is some milliseconds old. The numbers of the records
tell how many calls there were between.
"""

from __future__ import annotations

import itertools
from queue import Empty, Full

from .. import wire
from ..safe import foreign_exceptions
from ..safe.exact import class_name, is_a, key_of
from ..state.queue_sampling import APART_NS, EVERY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..context import Context
    from ..lifecycle.patcher import Undo

POLL_NS = 1_000_000
"""A `get` that finds the queue empty within this time is polling and is not recorded."""
_VARIADIC = 0x04 | 0x08
"""`co_flags` of code with `*args` or `**kwargs` (CO_VARARGS, CO_VARKEYWORDS)."""


def wrap_put(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record `put`, and sample what is put."""
    if not takes(original, "self", "obj", "block", "timeout"):
        return _wrap_any(original, session, wire.QUEUE_PUT)
    now, items, known = session.system.monotonic_ns, session.items, session.items.known
    count, apart_ns, mask, settle = itertools.count(), APART_NS, EVERY - 1, session.items.settle

    def put(self: Any, obj: Any, block: Any = True, timeout: Any = None) -> Any:
        began_ns = now()
        try:
            result = original(self, obj, block, timeout)
        except BaseException as error:
            _failed(session, wire.QUEUE_PUT, self, began_ns, error)
            foreign_exceptions.unframe(error)
            raise
        at_ns = now()
        number = next(count)
        if (
            at_ns > items.put_due_ns
            or not number & mask
            or at_ns - began_ns > apart_ns
            or key_of(self) not in known
        ):
            settle(wire.QUEUE_PUT, self, began_ns, number, obj)
        return result

    return put


def wrap_get(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Record `get`, and remember the task that a worker receives."""
    if not takes(original, "self", "block", "timeout"):
        return _wrap_any(original, session, wire.QUEUE_GET)
    now, items, known = session.system.monotonic_ns, session.items, session.items.known
    count, apart_ns, settle = itertools.count(), APART_NS, session.items.settle
    worker = session.worker

    def get(self: Any, block: Any = True, timeout: Any = None) -> Any:
        began_ns = now()
        if worker.source and worker.source == key_of(self):
            worker.end_job()
        try:
            result = original(self, block, timeout)
        except BaseException as error:
            _failed(session, wire.QUEUE_GET, self, began_ns, error)
            foreign_exceptions.unframe(error)
            raise
        at_ns = now()
        number = next(count)
        if at_ns > items.get_due_ns or at_ns - began_ns > apart_ns or key_of(self) not in known:
            settle(wire.QUEUE_GET, self, began_ns, number)
        if worker.is_busy:
            _taken(session, self, result)
        return result

    return get


def _wrap_any(original: Callable[..., Any], session: Context, kind: int) -> Callable[..., Any]:
    """Wrap a `put` or `get` with any signature."""
    now, items, worker = session.system.monotonic_ns, session.items, session.worker
    count, is_get = itertools.count(), kind == wire.QUEUE_GET

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        if worker.source and worker.source == key_of(self):
            worker.end_job()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            _failed(session, kind, self, began_ns, error)
            foreign_exceptions.unframe(error)
            raise
        at_ns = now()
        number = next(count)
        if (
            at_ns > (items.get_due_ns if is_get else items.put_due_ns)
            or not number % EVERY
            or at_ns - began_ns > APART_NS
            or key_of(self) not in items.known
        ):
            items.settle(kind, self, began_ns, number, *args[:1])
        if worker.is_busy:
            _taken(session, self, result)
        return result

    return call


def takes(function: Any, *names: str) -> bool:
    """Whether a function has the signature of the standard library, Python 3.10 to 3.15.

    Then the wrapper names all arguments, which saves a third of its cost. A replacement by another
    library is called with the arguments that the program passes.
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & _VARIADIC or code.co_kwonlyargcount:
        return False
    are_its_own = code.co_varnames[: code.co_argcount] == names
    return bool(are_its_own and function.__defaults__ == (True, None))


def _taken(session: Context, queue: Any, result: Any) -> None:
    """Remember the task that a worker of a DataLoader or of a pool has received."""
    worker = session.worker
    if worker.is_worker and type(result) is tuple and result and type(result[0]) is int:
        # A task of the index queue: batch index and sample indices.
        worker.task = result[0]
    elif worker.source == key_of(queue):
        _begin_job(session, result)


def _begin_job(session: Context, taken: Any) -> None:
    """Remember the task that the worker of a pool has received; never raises."""
    try:
        session.worker.begin_job(taken, session.system.monotonic_ns())
    except BaseException as error:
        if not foreign_exceptions.is_ours(error):
            raise


def add_gauges(module: ModuleType, session: Context) -> Undo:
    """Add the gauges `sites`, `queues` and `job`."""
    session.gauges["sites"] = session.items.show
    session.gauges["queues"] = session.items.depths.show
    session.gauges["job"] = session.worker.show_job
    return lambda: session.drop_gauges("sites", "queues", "job")


def _failed(session: Context, kind: int, queue: Any, began_ns: int, error: BaseException) -> None:
    """Record an exception of a queue; Empty and Full are results, not failures."""
    if not (is_a(error, Empty) or is_a(error, Full)):
        session.failed(kind, began_ns, error, queue=key_of(queue))
    elif session.system.monotonic_ns() - began_ns > POLL_NS:
        session.record(kind, began_ns, wire.FLAG_RAISED, 0, key_of(queue))


def wrap_feeder_error(original: Callable[..., Any], session: Context) -> Callable[..., Any]:
    """Note an item that the feeder thread could not send."""

    def _on_queue_feeder_error(error: Any, item: Any, *args: Any) -> Any:
        task = item[0] if type(item) is tuple and item and type(item[0]) is int else None
        session.note(
            "lost-item",
            item=class_name(type(item)),
            task=task,
            tid=session.system.get_native_id(),
            **foreign_exceptions.described(error),
        )
        return original(error, item, *args)

    return _on_queue_feeder_error
