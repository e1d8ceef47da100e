"""The queues of the standard library: torch has none of its own."""

from __future__ import annotations

from queue import Empty, Full

from .. import errors, wire
from ..items import EVERY
from ..patching import Point, attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from ..patching import Undo
    from ..session import Session

POLL_NS = 1_000_000
"""An empty-handed `get` shorter than this is polling, and not worth a record."""


def _put(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now, look = session.record, session.system.monotonic_ns, session.items.look
    count, mask = session.items.count, EVERY - 1
    known, meet = session.items.depths.known, session.items.depths.meet

    def put(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns, key = now(), id(self)
        if key not in known:
            meet(self)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            _failed(session, wire.QUEUE_PUT, self, began_ns, error)
            errors.unframe(error)
            raise
        record(wire.QUEUE_PUT, began_ns, 0, 0, key)
        if args and not next(count) & mask:
            look(args[0])
        return result

    return put


def _get(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    record, now, worker = session.record, session.system.monotonic_ns, session.worker
    known, meet = session.items.depths.known, session.items.depths.meet

    def get(self: Any, *args: Any, **kwargs: Any) -> Any:
        began_ns, key = now(), id(self)
        if key not in known:
            meet(self)
        is_job = key == worker.source
        if is_job:
            worker.end_job()
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            _failed(session, wire.QUEUE_GET, self, began_ns, error)
            errors.unframe(error)
            raise
        record(wire.QUEUE_GET, began_ns, 0, 0, key)
        if worker.is_worker and type(result) is tuple and result and type(result[0]) is int:
            # A task of the index queue: batch index and sample indices.
            worker.task = result[0]
        elif is_job:
            _begin_job(session, result)
        return result

    return get


def _begin_job(session: Session, taken: Any) -> None:
    """Remember what the worker of a pool has just taken up; never raises."""
    try:
        session.worker.begin_job(taken, session.system.monotonic_ns())
    except Exception as error:
        if not errors.is_ours(error):
            raise


def _gauges(module: ModuleType, session: Session) -> Undo:
    session.gauges["sites"] = session.items.show
    session.gauges["queues"] = session.items.depths.show
    session.gauges["job"] = session.worker.show_job
    return lambda: session.drop_gauges("sites", "queues", "job")


def _failed(session: Session, kind: int, queue: Any, began_ns: int, error: BaseException) -> None:
    """Record an exception of a queue; an empty or full queue is an answer, not a failure."""
    if not isinstance(error, (Empty, Full)):
        session.failed(kind, began_ns, error, queue=id(queue))
    elif session.system.monotonic_ns() - began_ns > POLL_NS:
        session.record(kind, began_ns, wire.FLAG_RAISED, 0, id(queue))


def _on_feeder_error(original: Callable[..., Any], session: Session) -> Callable[..., Any]:
    def _on_queue_feeder_error(error: Any, item: Any, *args: Any) -> Any:
        task = item[0] if type(item) is tuple and item and type(item[0]) is int else None
        session.note(
            "lost-item",
            type=type(error).__name__,
            text=errors.text_of(error),
            item=type(item).__qualname__,
            task=task,
            frames=errors.frames_of(error),
            tid=session.system.get_native_id(),
        )
        return original(error, item, *args)

    return _on_queue_feeder_error


POINTS = (
    Point("queue gauges", "multiprocessing.queues", _gauges),
    Point("Queue.put", "multiprocessing.queues", attribute("Queue.put", _put)),
    Point("Queue.get", "multiprocessing.queues", attribute("Queue.get", _get)),
    Point("JoinableQueue.put", "multiprocessing.queues", attribute("JoinableQueue.put", _put)),
    Point("SimpleQueue.put", "multiprocessing.queues", attribute("SimpleQueue.put", _put)),
    Point("SimpleQueue.get", "multiprocessing.queues", attribute("SimpleQueue.get", _get)),
    Point(
        "Queue._on_queue_feeder_error",
        "multiprocessing.queues",
        attribute("Queue._on_queue_feeder_error", _on_feeder_error),
    ),
)
